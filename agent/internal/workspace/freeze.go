package workspace

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/fault"
)

// FIFREEZE and FITHAW of linux/fs.h.
const (
	ioctlFreeze = 0xc0045877
	ioctlThaw   = 0xc0045878
)

// hold is one freeze of the file system, from the request to the thaw.
type hold struct {
	top *os.File
	// asked is closed by the first request for the thaw; over is closed when the hold is over.
	asked, over chan struct{}
	isAsked     bool
	// lasted tells, once the hold is over, whether the file system was frozen until the thaw was asked for.
	lasted bool
}

// Freeze writes the file system out and keeps programs from changing it, so that the host can copy the disk. The freeze
// ends with Thaw, after the limit, or when the session to the host ends, whichever is first. If the file system is not
// frozen within the limit, Freeze returns false, and there is no freeze.
func (w *Workspace) Freeze(limit time.Duration, sessionEnd <-chan struct{}) (frozen bool, err error) {
	h, err := w.beginHold()
	if err != nil {
		return false, err
	}
	deadline := make(chan struct{})
	time.AfterFunc(limit, func() { close(deadline) })
	began := make(chan error, 1)
	go func() {
		err := unix.IoctlSetInt(int(h.top.Fd()), ioctlFreeze, 0)
		began <- err
		if err == nil {
			h.keep(deadline, sessionEnd)
		}
		w.endHold(h)
	}()
	select {
	case err := <-began:
		if errors.Is(err, unix.EBUSY) {
			return false, fault.New(fault.InvalidState, "a program in the sandbox has frozen the file system at /workspace")
		}
		if err != nil {
			return false, fault.FromFile("cannot freeze the file system at /workspace", err)
		}
		return true, nil
	case <-deadline:
		return false, nil
	}
}

// keep waits for the end of the hold, and thaws.
func (h *hold) keep(deadline, sessionEnd <-chan struct{}) {
	select {
	case <-h.asked:
		h.lasted = true
	case <-deadline:
		slog.Warn("the file system at /workspace was thawed at its deadline")
	case <-sessionEnd:
		slog.Warn("the file system at /workspace was thawed, because the session ended")
	}
	if err := unix.IoctlSetInt(int(h.top.Fd()), ioctlThaw, 0); err != nil {
		// Root in the guest has thawed it.
		h.lasted = false
		slog.Warn("the file system at /workspace is not frozen any more", "error", err)
	}
}

func (w *Workspace) beginHold() (*hold, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hold != nil {
		return nil, errFrozen()
	}
	top, err := w.duplicateTop()
	if err != nil {
		return nil, err
	}
	w.hold = &hold{top: top, asked: make(chan struct{}), over: make(chan struct{})}
	return w.hold, nil
}

func (w *Workspace) endHold(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = nil
	_ = h.top.Close()
	close(h.over)
}

func errFrozen() error {
	return fault.New(fault.InvalidState, "the file system at /workspace is being frozen already; call POST /workspace/thaw first")
}

// Thaw ends the freeze. It reports whether the file system was frozen until now: the freeze may have ended by itself. It
// returns after the limit at the latest.
func (w *Workspace) Thaw(limit time.Duration) (lasted bool, err error) {
	w.mu.Lock()
	h := w.hold
	if h != nil && !h.isAsked {
		h.isAsked = true
		close(h.asked)
	}
	w.mu.Unlock()
	if h == nil {
		return false, nil
	}
	select {
	case <-h.over:
		return h.lasted, nil
	case <-time.After(limit):
		return false, fault.New(fault.InvalidState, "the file system at /workspace is still being written out; it is thawed after that")
	}
}
