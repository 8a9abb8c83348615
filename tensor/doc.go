// Package tensor has collectives and messages of tensors: arrays of numbers of any shape, in the
// memory of the processor or of a CUDA device, over any backend.
//
//	world, err := cohort.Init(ctx, nil)
//	comm, err := tensor.NewComm(world, nil)
//	grad, err := tensor.NewOn[float32](device, 1024, 1024)
//	err = tensor.Allreduce(comm, grad, grad, tensor.Average)
//
// An operation on a device's memory moves it through pinned memory of the host in pieces, so that
// copies from the device, communication, and copies to it go on at the same time; a library that
// takes device memory itself gets it as it is. What the ranks say to each other depends on the
// operation and the length only, never on where the tensors are: some ranks' may be on the
// processor and others' on devices, and results have the same bits.
//
// docs/tensor.md says what goes which way.
package tensor
