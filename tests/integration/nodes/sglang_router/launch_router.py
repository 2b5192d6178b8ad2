"""Started as the real one is."""

from node import main

if __name__ == "__main__":
    main()
