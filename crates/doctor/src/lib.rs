//! What of this machine's settings would spoil a measurement. Reads, and changes nothing.
