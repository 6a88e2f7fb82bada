/* Which cores there are, and where threads go. */
#ifndef EDGERUN_TOPOLOGY_H
#define EDGERUN_TOPOLOGY_H
int er_big_core_count(void);       /* big cores this process may use, siblings counted once, within its CPU quota */
void er_place_worker(int index);   /* called by worker `index` itself */
#endif
