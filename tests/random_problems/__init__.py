"""Problems drawn by a seed, and what runs and checks them on a device plan: on a GPU, or in the emulator."""
