"""What people read: tables, plots and Markdown made from metrics."""
