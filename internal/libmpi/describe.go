package libmpi

// Description is what is known of a library that was loaded to look at it.
type Description struct {
	Version     string // the level of the standard, such as "4.0"
	Library     string // its name and version in one line
	ABI         string
	ThreadLevel string // the highest it gives: single, funneled, serialized, multiple
	LargeCounts bool   // it has the functions whose counts are MPI_Count
	Persistent  string // the names persistent collectives have: "MPI_", "MPIX_", "" for none
	CUDA        string // whether it takes device pointers: "yes", "no", "unknown"
	ULFM        bool   // it can go on after a failure
	ULFMNote    string // why not, or what that takes
	Restored    int    // signal dispositions it changed, which were put back
}
