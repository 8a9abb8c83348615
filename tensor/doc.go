// Package tensor sends, receives and reduces tensors: arrays of numbers of any shape, in the memory
// of the processor or of a CUDA device, over any backend.
//
//	comm, err := tensor.NewComm(world, nil)
//	grad, err := tensor.NewOn[float32](device, 1024, 1024)
//	err = tensor.Allreduce(comm, grad, grad, tensor.Average)
//
// An operation on device memory moves it in pieces through pinned host memory, so that copies from
// the device, communication, and copies to the device overlap. An MPI library that accepts device
// memory gets it directly. The messages between ranks depend only on the operation and its length,
// never on where the tensors are. Some ranks may use the processor and others devices; the results
// have the same bits.
//
// docs/tensor.md describes which data take which path.
package tensor
