package freezer

import (
	"context"
	"errors"
	"testing"
	"time"

	"coppice/agent/internal/agenttest"
)

const long = time.Hour

func hold(t *testing.T, f *Freezer, longest time.Duration) *Hold {
	t.Helper()
	hold, err := f.Hold(context.Background(), agenttest.Limit, longest)
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func TestTheProgramsContinueOnlyWhenNothingHolds(t *testing.T) {
	ends := map[string]func(f *Freezer, first, second *Hold){
		"the host's first": func(f *Freezer, first, second *Hold) {
			_ = f.Thaw()
			first.Release()
		},
		"the host's in the middle": func(f *Freezer, first, second *Hold) {
			first.Release()
			_ = f.Thaw()
			_ = f.Thaw()
		},
		"each more than once": func(f *Freezer, first, second *Hold) {
			_ = f.Thaw()
			first.Release()
			first.Release()
			_ = f.Thaw()
		},
	}
	for name, end := range ends {
		groups := &fakeGroups{}
		f := New(groups)
		first := hold(t, f, long)
		f.Freeze(agenttest.Limit)
		second := hold(t, f, long)
		end(f, first, second)
		if err := second.Check(); err != nil || !groups.isFrozen() || groups.thaws != 0 {
			t.Fatal(name, "the last hold does not hold", err)
		}
		second.Release()
		if groups.isFrozen() {
			t.Fatal(name, "frozen by nobody")
		}
		enter(t, f)()
	}
}

func TestALayersHoldDoesNotEndWithTheHostsTime(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	f.step = time.Millisecond
	layers := hold(t, f, long)
	f.Freeze(agenttest.Limit)
	time.Sleep(3 * hostSteps * f.step)
	if err := layers.Check(); err != nil || !groups.isFrozen() || groups.thaws != 0 {
		t.Fatal("the host's time ended the layer's hold", err)
	}
	layers.Release()
	agenttest.Eventually(t, "the host's hold has ended", func() bool { return !groups.isFrozen() })
}

func TestTheHostsHoldDoesNotEndWithALayersTime(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	f.step = 100 * time.Millisecond
	layers := hold(t, f, patienceStep)
	f.Freeze(agenttest.Limit)
	<-layers.Context.Done()
	if !groups.isFrozen() || groups.thaws != 0 {
		t.Fatal("the layer's time ended the host's hold")
	}
}

func TestAHoldThatLastsTooLongEndsWithAnError(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	f.step = time.Millisecond
	began := time.Now()
	layers := hold(t, f, 30*patienceStep)
	<-layers.Context.Done()
	if took := time.Since(began); took < 30*f.step {
		t.Errorf("after %v", took)
	}
	if err := layers.Check(); !errors.Is(err, errTooLong) {
		t.Fatal(err)
	}
	agenttest.Eventually(t, "the programs continue", func() bool { return !groups.isFrozen() })
	// A later freeze does not make up for it.
	f.mu.Lock()
	f.step = patienceStep
	f.mu.Unlock()
	f.Freeze(agenttest.Limit)
	if err := layers.Check(); !errors.Is(err, errTooLong) {
		t.Fatal(err)
	}
	layers.Release()
	if !groups.isFrozen() {
		t.Fatal("a hold that had ended thawed another one's")
	}
}

func TestProgramsThatRunInAHoldAreNoticed(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	layers := hold(t, f, long)
	// This is what root in the guest can do.
	_ = groups.Thaw()
	if err := layers.Check(); !errors.Is(err, errRan) {
		t.Fatal(err)
	}
}

func TestAHoldOfWhatCannotBeFrozenHoldsNothing(t *testing.T) {
	groups := &fakeGroups{neverStand: true}
	f := New(groups)
	if _, err := f.Hold(context.Background(), soon, long); err == nil || groups.isFrozen() {
		t.Fatal("held", err)
	}
	enter(t, f)()
}

// In a copy of the machine, the layer's handler lives on, and its connection is gone.
func TestALayersHoldInACopyEndsNothingBeforeTheResumesEnd(t *testing.T) {
	for _, endsEarly := range []bool{true, false} {
		groups := &fakeGroups{}
		f := New(groups)
		connection, end := context.WithCancel(context.Background())
		layers, err := f.Hold(connection, agenttest.Limit, long)
		if err != nil {
			t.Fatal(err)
		}
		f.Freeze(agenttest.Limit)
		end()
		if layers.Check() == nil {
			t.Error("the hold outlives its request")
		}
		if endsEarly {
			layers.Release()
		}
		f.BeginResume()
		if !endsEarly {
			layers.Release()
		}
		if !groups.isFrozen() || groups.thaws != 0 {
			t.Fatal("thawed before the resume's end")
		}
		if err := f.EndResume(); err != nil || groups.isFrozen() {
			t.Fatal("not thawed", err)
		}
	}
}

func TestAResumeHoldsAlsoWhenOnlyALayerDid(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	layers := hold(t, f, long)
	f.BeginResume()
	layers.Release()
	if !groups.isFrozen() || groups.thaws != 0 {
		t.Fatal("thawed before the resume's end")
	}
	if err := f.EndResume(); err != nil || groups.isFrozen() {
		t.Fatal("not thawed", err)
	}
}

func TestALayersHoldDoesNotKeepACopyFrozen(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	layers := hold(t, f, long)
	f.Freeze(agenttest.Limit)
	f.BeginResume()
	if err := f.EndResume(); err != nil || groups.isFrozen() {
		t.Fatal("not thawed", err)
	}
	if err := layers.Check(); !errors.Is(err, errResumed) {
		t.Fatal(err)
	}
	enter(t, f)()
	f.Freeze(agenttest.Limit)
	layers.Release()
	if !groups.isFrozen() {
		t.Fatal("a hold of the original thawed the copy")
	}
}
