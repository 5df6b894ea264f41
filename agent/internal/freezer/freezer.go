// Package freezer holds the guest's programs still while the host saves the machine: POST /freeze and POST /thaw of
// docs/reference/agent-protocol.md, and the end of POST /resume.
//
//	running ──freeze──▶ asked for ──no start under way──▶ groups frozen
//	   ▲                    │                                  │
//	   └────────────────────┴── thaw, end of a resume, or ─────┘
//	                            60 s in which neither came and no resume began
//
// A process that is being started has the agent's memory and its processor until it has become its program (vfork). If
// it were frozen half way, the agent would wait for it, and nobody could thaw it. So no start begins while a freeze is
// asked for, and the groups are frozen only when none is under way.
package freezer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"coppice/agent/internal/clock"
	"coppice/agent/internal/fault"
)

// The agent thaws by itself what nobody thaws: the runner may have died. The time is counted in steps, because a clock
// that jumps when a saved machine comes back must not use it up; the runner gives up a machine that it has brought back
// after 45 s.
const (
	patienceStep  = 5 * time.Second
	patienceSteps = 12
)

// Groups are the control groups of the guest's programs.
type Groups interface {
	// Freeze asks the kernel; repeated, it asks for what is new.
	Freeze() error
	// AwaitFrozen tells whether all of them stand still, at the latest at that time; they do not if nobody asked.
	AwaitFrozen(until time.Time) bool
	// Thaw takes back what Freeze has asked for, and costs nothing if that is nothing.
	Thaw() error
}

// Freezer freezes and thaws the guest's programs. Nil is one that never does.
type Freezer struct {
	groups   Groups
	step     time.Duration
	setClock func(unixNs int64) error

	mu       sync.Mutex
	starting int  // processes that are being started
	asked    bool // from Freeze to Thaw
	// pressed is closed when the kernel has been asked, thawed when the freeze is over; both are of the current freeze.
	pressed, thawed chan struct{}
	isPressed       bool
	// watch numbers the self-thaw that counts; older ones do nothing.
	watch uint64
}

// New makes a Freezer.
func New(groups Groups) *Freezer {
	return &Freezer{groups: groups, step: patienceStep, setClock: clock.Set}
}

// Enter begins the start of a process; leave ends it. While the guest is frozen it waits, at most until the request's
// end: in a copy of the machine the requests of the original are over, and must not begin anything.
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
	if f.asked {
		return f.thawed, false
	}
	f.starting++
	return nil, true
}

func (f *Freezer) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starting--
	if f.asked && f.starting == 0 {
		f.press()
	}
}

// Freeze stops the guest's programs and tells whether they stand still. If they do not within the limit, the freeze
// stays asked for: the rest of them stops as soon as it can.
func (f *Freezer) Freeze(limit time.Duration) bool {
	until := time.Now().Add(limit)
	pressed := f.ask()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-pressed:
	case <-timer.C:
	}
	return f.groups.AwaitFrozen(until)
}

func (f *Freezer) ask() (pressed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.asked {
		f.asked, f.isPressed = true, false
		f.pressed, f.thawed = make(chan struct{}), make(chan struct{})
	}
	f.watch++
	f.await(f.watch, patienceSteps)
	if f.starting == 0 {
		f.press()
	}
	return f.pressed
}

// press is called with the lock held.
func (f *Freezer) press() {
	if err := f.groups.Freeze(); err != nil {
		slog.Warn("not all of the guest's programs are frozen", "error", err)
	}
	if !f.isPressed {
		f.isPressed = true
		close(f.pressed)
	}
}

// Thaw lets the guest's programs go on.
func (f *Freezer) Thaw() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw()
}

// thaw is called with the lock held.
func (f *Freezer) thaw() error {
	f.watch++
	err := f.groups.Thaw()
	if f.asked {
		f.asked = false
		close(f.thawed)
	}
	return err
}

// Hold is for a resume that begins: from now on only its end, or Thaw, ends the freeze. Otherwise one that fails half way
// would let programs run on with half an identity.
func (f *Freezer) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch++
}

// await counts the steps to the self-thaw.
func (f *Freezer) await(watch uint64, steps int) {
	time.AfterFunc(f.step, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case watch != f.watch:
		case steps > 1:
			f.await(watch, steps-1)
		default:
			slog.Warn("thawed without being asked", "after", patienceSteps*f.step)
			if err := f.thaw(); err != nil {
				slog.Error("the guest's programs are not thawed", "error", err)
			}
		}
	})
}
