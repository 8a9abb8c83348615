package tensor

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Copy copies the elements of src to dst, which has the same shape. The tensors may be on any
// devices and have any strides. The copy is complete when Copy returns.
//
// On a device the copy is ordered by the streams of the tensors: it runs after the work already in
// them. Between two devices, and between a device and Go memory, it goes through pinned memory in
// pieces that overlap.
//
// The tensors may share memory. A tensor on a device in more than 65536 separate pieces can be
// copied only if it has no gaps, as a transpose.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for different shapes; [cohort.ErrBuffer] for a nil tensor, or a
// destination whose elements may share memory; [cohort.ErrClosed] for a closed tensor;
// [cohort.ErrNotSupported] for too many pieces on a device; [cohort.ErrAlloc] if memory for the
// copy is missing; those of the device's driver.
func Copy[T cohort.Number](dst, src *Tensor[T]) error {
	err := dst.usable()
	if err == nil {
		err = src.usable()
	}
	if err == nil {
		err = transfer(dst, src)
	}
	return failed("copy", err)
}

// transfer is Copy for usable tensors.
func transfer[T cohort.Number](dst, src *Tensor[T]) error {
	if dst.n != src.n || !slices.Equal(dst.shape, src.shape) {
		return fault(cohort.ErrCount, "the source is %v, but the destination is %v", src, dst)
	}
	if !distinct(dst.shape, dst.strides) {
		return fault(cohort.ErrBuffer, "elements of the destination %v (strides %v) may share memory", dst, dst.strides)
	}
	if dst.n == 0 {
		return nil
	}
	if err := move(dst.place(), src.place()); err != nil {
		return fmt.Errorf("%v to %v: %w", src, dst, err)
	}
	return nil
}

// A place is the memory of a tensor, without its type.
type place struct {
	shape, strides []int
	n, size        int    // elements, and the bytes of each
	host           []byte // on the processor, as Tensor.data
	dev            *Device
	at             accel.Address
	stream         accel.Stream
}

func (t *Tensor[T]) place() place {
	return place{t.shape, t.strides, t.n, view.Size[T](), view.Bytes(t.data), t.dev, t.at, t.stream}
}

func (p *place) contiguous() bool { return p.n <= 1 || contiguous(p.shape, p.strides) }

// reach returns the number of bytes from a place's first to its last.
func (p *place) reach() int { return extent(p.shape, p.strides) * p.size }

// onHost returns a new contiguous place in Go memory, of the same shape.
func (p *place) onHost() place {
	return place{shape: p.shape, strides: rowMajor(p.shape), n: p.n, size: p.size, host: make([]byte, p.n*p.size)}
}

// move copies one place to another of the same shape, with at least one element.
func move(dst, src place) error {
	if dst.dev == nil && src.dev == nil {
		moveHost(dst, src)
		return nil
	}
	if dst.shuffled() || src.shuffled() {
		return moveImages(dst, src)
	}
	for _, p := range [...]*place{&dst, &src} {
		if err := p.scattered(); err != nil {
			return err
		}
	}
	switch {
	case dst.dev == src.dev:
		return moveWithin(dst, src)
	case src.dev == nil:
		if !src.contiguous() {
			packed := src.onHost()
			moveHost(packed, src)
			src = packed
		}
		return upload(dst, src.host)
	case dst.dev != nil:
		return across(dst, src)
	}
	packed := dst
	if !dst.contiguous() {
		packed = dst.onHost()
	}
	err := download(packed.host, src)
	if err == nil {
		moveHost(dst, packed) // does nothing if they are the same memory
	}
	return err
}

// moveHost is move within the processor's memory.
func moveHost(dst, src place) {
	shared := view.Overlap(dst.host, src.host)
	switch {
	case shared && view.Same(dst.host, src.host) && slices.Equal(dst.strides, src.strides):
	case dst.contiguous() && src.contiguous() && shared:
		copy(dst.host, src.host)
	case dst.contiguous() && src.contiguous():
		blit(dst.host, src.host)
	case shared: // otherwise it would read what it has written
		packed := src.onHost()
		moveHost(packed, src)
		moveHost(dst, packed)
	default:
		pack(dst.host, src.host, dst.size, dst.shape, dst.strides, src.strides)
	}
}

// moveWithin is move within one device. A device's own copies must not overlap.
func moveWithin(dst, src place) error {
	apart := dst.at >= src.at+accel.Address(src.reach()) || src.at >= dst.at+accel.Address(dst.reach())
	if apart || dst.at == src.at && slices.Equal(dst.strides, src.strides) {
		return within(dst, src, apart)
	}
	at, err := dst.dev.acc.Alloc(src.n * src.size)
	if err != nil {
		return err
	}
	packed := place{shape: src.shape, strides: rowMajor(src.shape), n: src.n, size: src.size, dev: src.dev, at: at, stream: src.stream}
	err = within(packed, src, true)
	if err == nil {
		err = within(dst, packed, true)
	}
	if back := dst.dev.acc.Free(at); err == nil {
		err = back
	}
	return err
}

// moveImages is move where a place consists of many small pieces of a device without gaps, as a
// transpose does. It copies the bytes in the order of the device's memory and lets the processor
// reorder them.
func moveImages(dst, src place) error {
	if src.dev != nil {
		image, all := src.image()
		if err := download(image.host, all); err != nil {
			return err
		}
		src = image
	}
	if dst.dev == nil {
		moveHost(dst, src)
		return nil
	}
	image, all := dst.image()
	moveHost(image, src)
	return upload(all, image.host)
}

// image returns a new place on the processor for the bytes of p in the order of p's memory, and a
// contiguous place on the device with these bytes.
func (p *place) image() (image, all place) {
	image, all = p.onHost(), *p
	if p.shuffled() {
		image.strides = p.strides
		all.shape, all.strides = []int{p.n}, []int{1}
	}
	return image, all
}

// shuffled reports whether a place consists of many small pieces of a device without gaps between
// them.
func (p *place) shuffled() bool {
	const (
		many  = 16
		small = 32 << 10 // bytes copied in about the time that starting a copy takes
	)
	if p.dev == nil || p.contiguous() {
		return false
	}
	c := newCursor(p)
	return c.pieces() > many && c.run < small && extent(p.shape, p.strides) == p.n && distinct(p.shape, p.strides)
}

// mostPieces is how many pieces of device memory are copied one by one; each takes microseconds.
const mostPieces = 1 << 16

// scattered returns an error for a place of a device in too many pieces.
func (p *place) scattered() error {
	if p.dev == nil {
		return nil
	}
	c := newCursor(p)
	if n := c.pieces(); n > mostPieces {
		return fault(cohort.ErrNotSupported, "shape %v with strides %v has %d separate pieces of %d bytes on %v, more than %d; "+
			"copy the whole tensor and take the view from the copy", p.shape, p.strides, n, c.run, p.dev, mostPieces)
	}
	return nil
}
