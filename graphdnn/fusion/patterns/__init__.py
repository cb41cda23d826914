"""Operations that become one kernel before anything else joins it."""
