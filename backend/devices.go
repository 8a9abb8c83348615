package backend

// Devices is implemented by a Comm that can pass buffers in the memory of a device, such as a GPU, to a
// library without reading them (see Caps.DeviceMemory). Other backends read all buffers with the
// processor.
type Devices interface {
	// Direct reports whether a message (coll 0), or a blocking collective, passes buffers of this length
	// straight to the library. Of the collectives in place, that holds for Reduce and Allreduce only. op and kind
	// matter for reductions only. The answer for a collective is the same on all ranks.
	Direct(coll Coll, op OpCode, kind Kind, bytes int) bool

	// End sets how the library is ended: run calls end, in a thread in which a device can be used. The library releases
	// device memory then that it has mapped.
	End(run func(end func()) error)
}
