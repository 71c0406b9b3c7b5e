"""What is paid: one file per reward family or plug-in; schedules; balancing. Pure: a trace in, rows out."""
