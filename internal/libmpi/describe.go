package libmpi

// Description describes a library that was loaded to examine it.
type Description struct {
	Version     string // the level of the standard, such as "4.0"
	Library     string // its name and version in one line
	ABI         string
	ThreadLevel string // the highest it grants: single, funneled, serialized, multiple
	LargeCounts bool   // it has functions with counts of type MPI_Count
	Persistent  string // the prefix of persistent collectives: "MPI_", "MPIX_", "" for none
	CUDA        string // whether it accepts device pointers: "yes", "no", "unknown"
	Restored    int    // signal dispositions that it changed and that were restored
}
