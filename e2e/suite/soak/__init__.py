"""The soak: random work and random crashes, with every byte, call and leftover looked at. `make soak`."""
