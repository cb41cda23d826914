"""The CUDA device below the engines: compiler, kernel cache, driver. Each library loads when it is first used."""
