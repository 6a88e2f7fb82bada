"""Host side: from a plan to one executable, with budgets."""
