"""`python -m edgerun`: the command line, where the script is not on the path."""

from edgerun.cli.main import main

if __name__ == "__main__":
    main()
