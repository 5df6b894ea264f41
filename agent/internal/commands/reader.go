package commands

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"

	"coppice/agent/internal/frame"
	"coppice/agent/internal/stream"
)

// errGap says that output between the reader and its new position has been dropped.
var errGap = errors.New("output was dropped")

// reader reads an output from a position on.
type reader struct {
	output *output
	// at is the frame that is read next. Its offset is -1 until the frame is found.
	at mark
	// skip is how much of that frame's payload lies before the reader's position.
	skip    int
	payload [stream.ChunkBytes]byte
}

// readFrom returns a reader. A position after the end becomes the end.
func (o *output) readFrom(position int64) *reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	return &reader{output: o, at: mark{position: min(position, o.end.position), offset: -1}}
}

// position is that of the byte that is read next.
func (r *reader) position() int64 { return r.at.position + int64(r.skip) }

// next returns a part of the output, errGap if the part has been dropped, or io.EOF after the last part of a command that
// has ended. If there is nothing yet, the payload is empty, and changed is closed when that may be different. The payload
// is valid until the next call.
func (r *reader) next() (kind byte, payload []byte, changed <-chan struct{}, err error) {
	o := r.output
	o.mu.Lock()
	defer o.mu.Unlock()
	if first := o.marks[0]; r.position() < first.position || r.at.offset >= 0 && r.at.offset < first.offset {
		r.at, r.skip = first, 0
		return 0, nil, nil, errGap
	}
	if r.at.offset < 0 {
		if err := r.seek(); err != nil {
			return 0, nil, nil, err
		}
	}
	if r.at.offset == o.end.offset {
		if o.isEnded {
			return 0, nil, nil, io.EOF
		}
		return 0, nil, o.changed, nil
	}
	kind, length, err := o.header(r.at.offset)
	if err != nil {
		return 0, nil, nil, err
	}
	payload = r.payload[:length-r.skip]
	if err := o.read(payload, r.at.offset+frame.HeaderBytes+int64(r.skip)); err != nil {
		return 0, nil, nil, err
	}
	r.pass(length)
	return kind, payload, nil, nil
}

// pass goes to the next frame.
func (r *reader) pass(length int) {
	r.at.offset += frame.HeaderBytes + int64(length)
	r.at.position += int64(length)
	r.skip = 0
}

// seek finds the frame that contains the reader's position.
func (r *reader) seek() error {
	o, wanted := r.output, r.at.position
	after := sort.Search(len(o.marks), func(i int) bool { return o.marks[i].position > wanted })
	r.at = o.marks[after-1]
	for r.at.offset < o.end.offset {
		_, length, err := o.header(r.at.offset)
		if err != nil {
			return err
		}
		if r.at.position+int64(length) > wanted {
			r.skip = int(wanted - r.at.position)
			return nil
		}
		r.pass(length)
	}
	return nil
}

// header reads the header of a frame that is kept.
func (o *output) header(offset int64) (kind byte, length int, err error) {
	var header [frame.HeaderBytes]byte
	if err := o.read(header[:], offset); err != nil {
		return 0, 0, err
	}
	// The file is out of reach of all but root in the guest, who may have written to it.
	size := binary.BigEndian.Uint32(header[1:])
	if size > stream.ChunkBytes || offset+frame.HeaderBytes+int64(size) > o.end.offset {
		return 0, 0, fmt.Errorf("the output has been changed at %d", offset)
	}
	return header[0], int(size), nil
}

// read reads bytes of frames that are kept.
func (o *output) read(content []byte, offset int64) error {
	if o.file == nil {
		copy(content, o.memory[offset-o.marks[0].offset:])
		return nil
	}
	_, err := o.file.ReadAt(content, offset-o.base)
	return err
}
