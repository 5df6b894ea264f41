package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
)

// watchBuffer holds at least 200 events with the longest names.
const watchBuffer = 64 << 10

// kernelEvent is one struct inotify_event.
type kernelEvent struct {
	id     int32
	mask   uint32
	cookie uint32
	name   string
}

func (e *kernelEvent) has(mask uint32) bool { return e.mask&mask != 0 }

// parseEvents splits what one read returned. The kernel returns whole events only.
func parseEvents(content []byte) []kernelEvent {
	var events []kernelEvent
	for len(content) >= unix.SizeofInotifyEvent {
		length := int(binary.NativeEndian.Uint32(content[12:]))
		rest := content[unix.SizeofInotifyEvent:]
		if length > len(rest) {
			break
		}
		name, _, _ := bytes.Cut(rest[:length], []byte{0})
		events = append(events, kernelEvent{
			id: int32(binary.NativeEndian.Uint32(content)), mask: binary.NativeEndian.Uint32(content[4:]),
			cookie: binary.NativeEndian.Uint32(content[8:]), name: string(name),
		})
		content = rest[length:]
	}
	return events
}

// serve sends events until the directory is gone, or an error: then the client has left.
func (w *watch) serve() error {
	buffer := make([]byte, watchBuffer)
	if err := w.lines.flush(); err != nil {
		return nil
	}
	for {
		isOver, err := w.step(buffer)
		if flushErr := w.lines.flush(); isOver || err != nil || flushErr != nil {
			return nil
		}
	}
}

func (w *watch) step(buffer []byte) (isOver bool, err error) {
	wait := api.LineBeat
	if w.moved != nil {
		wait = pairWait
	}
	if err := w.queue.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return false, err
	}
	n, err := w.queue.Read(buffer)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if w.moved != nil {
			return false, w.settle()
		}
		return false, w.lines.Beat()
	}
	if err != nil {
		return false, err
	}
	for _, e := range parseEvents(buffer[:n]) {
		isOver, err := w.handle(&e)
		if isOver || err != nil {
			return isOver, err
		}
	}
	return false, nil
}

func (w *watch) handle(e *kernelEvent) (isOver bool, err error) {
	if e.has(unix.IN_Q_OVERFLOW) {
		return false, w.resynchronize()
	}
	directory, isKnown := w.paths[e.id]
	if !isKnown {
		return false, nil
	}
	if e.id == w.topID && e.has(changesOf|unix.IN_UNMOUNT|unix.IN_IGNORED) {
		return true, errors.Join(w.settle(), w.lines.send(event{Type: eventEnded, Path: w.top}))
	}
	if e.has(unix.IN_IGNORED) {
		delete(w.paths, e.id)
		return false, nil
	}
	full := path.Join(directory, e.name)
	if w.moved != nil && e.has(unix.IN_MOVED_TO) && e.cookie == w.moved.cookie {
		return false, w.pair(full)
	}
	if err := w.settle(); err != nil {
		return false, err
	}
	return false, w.report(e, full)
}

func (w *watch) report(e *kernelEvent, full string) error {
	isDirectory := e.has(unix.IN_ISDIR)
	switch {
	case e.has(unix.IN_MOVED_FROM):
		w.moved = &movedFile{cookie: e.cookie, path: full, isDirectory: isDirectory}
		return nil
	case e.has(unix.IN_CREATE | unix.IN_MOVED_TO):
		return w.reportNew(full, isDirectory)
	case e.has(unix.IN_DELETE):
		return w.lines.send(event{Type: eventRemoved, Path: full, Directory: isDirectory})
	case e.has(unix.IN_MODIFY):
		return w.lines.send(event{Type: eventModified, Path: full})
	case e.has(unix.IN_ATTRIB):
		return w.lines.send(event{Type: eventAttributes, Path: full, Directory: isDirectory})
	}
	return nil
}

// reportNew also reports what a new directory of a recursive watch has by the time that it is watched.
func (w *watch) reportNew(full string, isDirectory bool) error {
	if err := w.lines.send(event{Type: eventCreated, Path: full, Directory: isDirectory}); err != nil || !isDirectory {
		return err
	}
	return w.follow(full, w.lines.send)
}

// follow watches a directory that came to a path, and all below it, of a recursive watch.
func (w *watch) follow(full string, found func(event) error) error {
	if !w.recursive {
		return nil
	}
	_, err := w.add(full, changesIn|unix.IN_DONT_FOLLOW)
	if err == nil {
		err = w.addBelow(full, found)
	}
	return w.admitLoss(full, err)
}

// pair completes a rename within the tree.
func (w *watch) pair(to string) error {
	from := w.moved
	w.moved = nil
	if from.isDirectory {
		w.rename(from.path, to)
	}
	err := w.lines.send(event{Type: eventRenamed, Path: to, From: from.path, Directory: from.isDirectory})
	if err != nil || !from.isDirectory {
		return err
	}
	return w.follow(to, w.reportUnseen())
}

// reportUnseen returns a function that reports what is in directories that were not watched. A directory that was renamed
// right after its creation was gone from its first path by the time that it should have been watched there.
func (w *watch) reportUnseen() func(event) error {
	watched := map[string]bool{}
	for _, known := range w.paths {
		watched[known] = true
	}
	return func(e event) error {
		if watched[path.Dir(e.Path)] {
			return nil
		}
		return w.lines.send(e)
	}
}

// settle reports the first half of a rename whose second half is outside of the tree.
func (w *watch) settle() error {
	from := w.moved
	if from == nil {
		return nil
	}
	w.moved = nil
	if from.isDirectory {
		w.forget(from.path)
	}
	return w.lines.send(event{Type: eventRemoved, Path: from.path, Directory: from.isDirectory})
}

// resynchronize reports that events were lost, and watches the directories whose creation was among them.
func (w *watch) resynchronize() error {
	w.moved = nil
	if err := w.lines.send(event{Type: eventLost}); err != nil {
		return err
	}
	return w.admitLoss(w.top, w.addBelow(w.top, func(event) error { return nil }))
}

// admitLoss reports a directory that cannot be watched.
func (w *watch) admitLoss(directory string, err error) error {
	if err = ignoreGone(err); err == nil || w.context.Err() != nil {
		return err
	}
	return w.lines.send(event{Type: eventLost, Path: directory, Directory: true})
}
