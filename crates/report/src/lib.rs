//! Reports: an archived run becomes one self-contained page, and the same tables as text.
