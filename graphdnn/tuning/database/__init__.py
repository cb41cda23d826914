"""The tuning database: a SQLite file of measured configurations."""
