// Package freezer freezes the guest's programs while the host saves the machine or reads its files: POST /freeze,
// POST /thaw and GET /layer of docs/reference/agent-protocol.md, and POST /resume.
//
//	running ──first hold──▶ requested ──no start under way──▶ groups frozen
//	   ▲                        │                                  │
//	   └────────────────────────┴──────── last hold ends ──────────┘
//
// Each reason to stand still is a hold of its own, and no hold ends another one:
//
//	the host's     POST /freeze ─▶ POST /thaw, end of a resume, or 60 s in which neither came and no resume began
//	a layer's      Hold ─▶ Release, its time limit, or the end of a resume
//
// A machine is saved under the host's hold. So in its copy, a layer's hold that ends with the connection of the
// original lets nothing run: the host's hold lasts until the copy has its own identity.
//
// A process that is being started uses the agent's memory and processor until it has become its program (vfork). If it
// were frozen in between, the agent would wait for it and could not thaw it. So no start begins while a freeze is
// requested, and the groups are frozen only when no start is under way.
package freezer

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"coppice/agent/internal/clock"
	"coppice/agent/internal/fault"
)

// Every hold ends by itself: the runner may have died. The time is counted in steps, so that a clock that jumps when a
// saved machine is restored does not use it up. The runner gives up a restored machine after 45 s.
const (
	patienceStep = 5 * time.Second
	hostPatience = time.Minute
	// unlimited is the patience of a resume.
	unlimited = 0
	// recheckLimit is for a program that was killed while it was frozen: its group counts as frozen again when it has
	// ended.
	recheckLimit = 2 * time.Second
)

var (
	errReleased = errors.New("the programs of the sandbox may run again")
	errTooLong  = errors.New("the programs of the sandbox stood still for as long as they may, and continued")
	errResumed  = errors.New("the machine is a copy, and its programs continued")
	errRan      = errors.New("the programs of the sandbox did not stand still; end them and try again")
)

// Groups are the control groups of the guest's programs.
type Groups interface {
	// Freeze asks the kernel to freeze the groups. A repeated call freezes new groups.
	Freeze() error
	// AwaitFrozen waits, at most until the given time, and reports whether all groups are frozen. It returns false if
	// no freeze was requested.
	AwaitFrozen(until time.Time) bool
	// Thaw undoes what Freeze has requested. It costs nothing if nothing was requested.
	Thaw() error
}

// Freezer freezes and thaws the guest's programs. A nil Freezer never freezes them.
type Freezer struct {
	groups   Groups
	step     time.Duration
	setClock func(unixNs int64) error

	mu       sync.Mutex
	starting int // processes that are being started
	holds    map[*Hold]bool
	// host is the latest hold of POST /freeze or of a resume, or nil.
	host *Hold
	// pressed is closed when the kernel has been asked to freeze; thawed is closed when the freeze is over. Both belong
	// to the current freeze.
	pressed, thawed chan struct{}
	isPressed       bool
}

// Hold keeps the guest's programs frozen until it ends.
type Hold struct {
	// Context is done when the hold ends. Its cause says why.
	Context context.Context
	end     context.CancelCauseFunc
	freezer *Freezer
}

// New returns a Freezer.
func New(groups Groups) *Freezer {
	return &Freezer{groups: groups, step: patienceStep, setClock: clock.Set, holds: map[*Hold]bool{}}
}

// Enter begins the start of a process; leave ends it. While the guest is frozen, Enter waits, at most until the request
// ends: in a copy of the machine, the requests of the original are over and must not start anything.
func (f *Freezer) Enter(ctx context.Context) (leave func(), err error) {
	if f == nil {
		return func() {}, nil
	}
	for {
		thawed, entered := f.tryEnter()
		if entered {
			return f.leave, nil
		}
		select {
		case <-thawed:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, fault.New(fault.InvalidState, "the client left while the sandbox was frozen; nothing was started")
		}
	}
}

func (f *Freezer) tryEnter() (thawed <-chan struct{}, entered bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isAsked() {
		return f.thawed, false
	}
	f.starting++
	return nil, true
}

func (f *Freezer) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starting--
	if f.isAsked() && f.starting == 0 {
		f.press()
	}
}

func (f *Freezer) isAsked() bool { return len(f.holds) > 0 }

// Freeze stops the guest's programs for the host and reports whether they are frozen. If they are not within the limit,
// the freeze stays requested: the rest of them stops as soon as it can. A repeated call begins the host's time anew.
func (f *Freezer) Freeze(limit time.Duration) bool {
	until := time.Now().Add(limit)
	f.mu.Lock()
	f.holdForHost(hostPatience)
	pressed := f.ask()
	f.mu.Unlock()
	return f.await(pressed, until)
}

// Hold stops the guest's programs until the hold is released, longest at most. It fails if they are not frozen within
// the limit.
func (f *Freezer) Hold(ctx context.Context, limit, longest time.Duration) (*Hold, error) {
	until := time.Now().Add(limit)
	f.mu.Lock()
	hold := f.begin(ctx, longest)
	pressed := f.ask()
	f.mu.Unlock()
	if !f.await(pressed, until) {
		hold.Release()
		return nil, fault.New(fault.InvalidState, "the programs of the sandbox cannot be frozen; end them and try again")
	}
	return hold, nil
}

// Check returns an error if the programs may have run since the hold began.
func (h *Hold) Check() error {
	isFrozen := h.freezer.groups.AwaitFrozen(time.Now().Add(recheckLimit))
	if err := context.Cause(h.Context); err != nil {
		return err
	}
	if !isFrozen {
		return errRan
	}
	return nil
}

// Release ends the hold. It may have ended already.
func (h *Hold) Release() {
	h.freezer.mu.Lock()
	defer h.freezer.mu.Unlock()
	h.freezer.endOrLog(errReleased, h)
}

// holdForHost begins the host's hold anew. Call it with the lock held.
func (f *Freezer) holdForHost(patience time.Duration) {
	earlier := f.host
	f.host = f.begin(context.Background(), patience)
	f.endOrLog(errReleased, earlier)
}

// begin adds a hold. Call it with the lock held.
func (f *Freezer) begin(ctx context.Context, longest time.Duration) *Hold {
	if !f.isAsked() {
		f.isPressed = false
		f.pressed, f.thawed = make(chan struct{}), make(chan struct{})
	}
	hold := &Hold{freezer: f}
	hold.Context, hold.end = context.WithCancelCause(ctx)
	f.holds[hold] = true
	if longest != unlimited {
		f.count(hold, int(longest/patienceStep))
	}
	return hold
}

// ask asks the kernel as soon as no start is under way. Each hold asks, because there may be new groups. Call it with
// the lock held.
func (f *Freezer) ask() (pressed <-chan struct{}) {
	if f.starting == 0 {
		f.press()
	}
	return f.pressed
}

// await waits until the programs are frozen.
func (f *Freezer) await(pressed <-chan struct{}, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-pressed:
	case <-timer.C:
	}
	return f.groups.AwaitFrozen(until)
}

// press asks the kernel to freeze the groups. Call it with the lock held.
func (f *Freezer) press() {
	if err := f.groups.Freeze(); err != nil {
		slog.Warn("not all of the guest's programs are frozen", "error", err)
	}
	if !f.isPressed {
		f.isPressed = true
		close(f.pressed)
	}
}

// Thaw ends the host's hold.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end(errReleased, f.host)
}

// BeginResume is called when a resume begins. From now on only the resume's end, or Thaw, ends the freeze. Otherwise a
// resume that fails half way would let programs run with half an identity. A guest that runs is not frozen.
func (f *Freezer) BeginResume() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isAsked() {
		f.holdForHost(unlimited)
	}
}

// EndResume ends the freeze. The requests of the original machine are over, so none of their holds counts.
func (f *Freezer) EndResume() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end(errResumed, slices.Collect(maps.Keys(f.holds))...)
}

// end ends those of the holds that have not ended, and the freeze if none is left. If an earlier thaw failed, it tries
// again. Call it with the lock held.
func (f *Freezer) end(cause error, holds ...*Hold) error {
	for _, hold := range holds {
		if f.holds[hold] {
			hold.end(cause)
			delete(f.holds, hold)
		}
	}
	if f.isAsked() {
		return nil
	}
	return f.thaw()
}

func (f *Freezer) endOrLog(cause error, hold *Hold) {
	if err := f.end(cause, hold); err != nil {
		slog.Error("cannot thaw the guest's programs", "error", err)
	}
}

// thaw lets the programs continue. Call it with the lock held, when nothing holds.
func (f *Freezer) thaw() error {
	err := f.groups.Thaw()
	if f.thawed != nil {
		close(f.thawed)
		f.thawed = nil
	}
	return err
}

// count ends a hold after a number of steps.
func (f *Freezer) count(hold *Hold, steps int) {
	time.AfterFunc(f.step, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case !f.holds[hold]:
		case steps > 1:
			f.count(hold, steps-1)
		default:
			slog.Warn("a freeze ended without a request")
			f.endOrLog(errTooLong, hold)
		}
	})
}
