package freezer

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
)

// fakeGroups are frozen at once, or never.
type fakeGroups struct {
	mu               sync.Mutex
	frozen           bool
	neverStand       bool
	freezes, thaws   int
	failThaw, failed error
}

func (g *fakeGroups) Freeze() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = true
	g.freezes++
	return g.failed
}

func (g *fakeGroups) AwaitFrozen(time.Time) bool { return g.isFrozen() && !g.neverStand }

func (g *fakeGroups) Thaw() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.thaws++
	g.frozen = g.failThaw != nil
	return g.failThaw
}

func (g *fakeGroups) isFrozen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.frozen
}

const (
	soon      = 20 * time.Millisecond
	hostSteps = hostPatience / patienceStep
	testLimit = 10 * time.Second
)

func enter(t *testing.T, f *Freezer) (leave func()) {
	t.Helper()
	leave, err := f.Enter(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return leave
}

func TestFreezeAndThawMayBeRepeated(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	for range 2 {
		for range 2 {
			if !f.Freeze(agenttest.Limit) || !groups.isFrozen() {
				t.Fatal("not frozen")
			}
		}
		if err := errors.Join(f.Thaw(), f.Thaw()); err != nil || groups.isFrozen() {
			t.Fatal("not thawed", err)
		}
		enter(t, f)()
	}
}

func TestNothingIsFrozenWhileAProcessIsBeingStarted(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	first, second := enter(t, f), enter(t, f)
	if f.Freeze(soon) || groups.isFrozen() {
		t.Fatal("frozen in the middle of a start")
	}
	answer := make(chan bool, 1)
	go func() { answer <- f.Freeze(agenttest.Limit) }()
	first()
	if groups.isFrozen() {
		t.Fatal("frozen before the last start ended")
	}
	second()
	if !<-answer || !groups.isFrozen() {
		t.Fatal("not frozen after the last start")
	}
}

func TestAFreezeThatIsOverWhenAStartEndsIsNotDone(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	leave := enter(t, f)
	if f.Freeze(soon) {
		t.Fatal("frozen in the middle of a start")
	}
	if err := f.Thaw(); err != nil {
		t.Fatal(err)
	}
	leave()
	if groups.isFrozen() {
		t.Fatal("frozen after the thaw")
	}
}

func TestAStartWaitsForTheThaw(t *testing.T) {
	f := New(&fakeGroups{})
	f.Freeze(agenttest.Limit)
	entered := make(chan error, 1)
	go func() {
		leave, err := f.Enter(context.Background())
		if err == nil {
			leave()
		}
		entered <- err
	}()
	select {
	case err := <-entered:
		t.Fatal("entered while frozen", err)
	case <-time.After(soon):
	}
	if err := f.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
}

func TestAStartWhoseRequestIsOverNeverBegins(t *testing.T) {
	f := New(&fakeGroups{})
	f.Freeze(agenttest.Limit)
	ctx, leave := context.WithCancel(context.Background())
	entered := make(chan error, 1)
	go func() {
		_, err := f.Enter(ctx)
		entered <- err
	}()
	leave()
	// This is the order in a copy of the machine: the session ends before the thaw, and the waiting goroutine may run
	// after both.
	if err := f.Thaw(); err != nil {
		t.Fatal(err)
	}
	f.Freeze(agenttest.Limit)
	if err := <-entered; err == nil || f.starting != 0 {
		t.Fatal("entered although the request was over", err)
	}
}

func TestWhatCannotBeFrozenStaysAskedFor(t *testing.T) {
	groups := &fakeGroups{neverStand: true}
	f := New(groups)
	if f.Freeze(soon) || !groups.isFrozen() {
		t.Fatal("the freeze did not stay requested")
	}
}

func TestNobodyThawingTheAgentDoes(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	f.step = time.Millisecond
	began := time.Now()
	f.Freeze(agenttest.Limit)
	agenttest.Eventually(t, "the agent thaws by itself", func() bool { return !groups.isFrozen() })
	if took := time.Since(began); took < hostSteps*f.step {
		t.Errorf("after %v", took)
	}
	enter(t, f)()
}

func TestAResumeThatHasBegunIsNotOvertakenByTheAgentsOwnThaw(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	f.step = time.Millisecond
	f.Freeze(agenttest.Limit)
	f.BeginResume()
	time.Sleep(3 * hostSteps * f.step)
	if !groups.isFrozen() || groups.thaws != 0 {
		t.Fatal("thawed in the middle of a resume")
	}
	if err := f.EndResume(); err != nil || groups.isFrozen() {
		t.Fatal("not thawed", err)
	}
}

func TestAnOldCountDoesNotEndANewFreeze(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	f.step = 5 * time.Millisecond
	for range hostSteps {
		f.Freeze(agenttest.Limit)
		time.Sleep(2 * f.step)
		if !groups.isFrozen() {
			t.Fatal("thawed by the count of an old freeze")
		}
		if err := f.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAResumeOfAGuestThatRunsDoesNothingToStarts(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	leave := enter(t, f)
	f.BeginResume()
	enter(t, f)()
	if err := f.EndResume(); err != nil || groups.freezes != 0 {
		t.Fatal(groups.freezes, err)
	}
	leave()
	enter(t, f)()
}

func call(t *testing.T, f *Freezer, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	routes := api.Router{"POST /freeze": f.HandleFreeze, "POST /thaw": f.HandleThaw}
	routes.ServeHTTP(answer, httptest.NewRequest("POST", path, strings.NewReader(body)))
	return answer
}

func TestAThawSetsTheClockBeforeAnythingRuns(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	var told int64
	f.setClock = func(unixNs int64) error {
		if !groups.isFrozen() {
			t.Error("thawed before the clock was set")
		}
		told = unixNs
		return errors.New("injected")
	}
	call(t, f, "/freeze", ``)
	answer := call(t, f, "/thaw", `{"clock_unix_ns":"1763700000123456789"}`)
	if late := told - 1763700000123456789; answer.Code != 200 || late < 0 || late > testLimit.Nanoseconds() {
		t.Fatal(answer.Code, answer.Body, late)
	}
	if groups.isFrozen() {
		t.Fatal("a clock that cannot be set keeps the guest frozen")
	}
	for _, wrong := range []string{`"-5"`, `"x"`, `17`} {
		if answer := call(t, f, "/thaw", `{"clock_unix_ns":`+wrong+`}`); answer.Code != 400 {
			t.Error(wrong, answer.Code, answer.Body)
		}
	}
}

func TestTheAnswersSayWhatIs(t *testing.T) {
	groups := &fakeGroups{}
	f := New(groups)
	for _, step := range []struct{ path, body, want string }{
		{"/freeze", `{"deadline_ms":500}`, `{"frozen":true}`},
		{"/freeze", ``, `{"frozen":true}`},
		{"/thaw", ``, `{}`},
		{"/thaw", `{}`, `{}`},
	} {
		if answer := call(t, f, step.path, step.body); answer.Code != 200 || answer.Body.String() != step.want {
			t.Errorf("%s: %d %s", step.path, answer.Code, answer.Body)
		}
	}
	groups.neverStand = true
	if answer := call(t, f, "/freeze", `{"deadline_ms":1}`); answer.Code != 200 || answer.Body.String() != `{"frozen":false}` {
		t.Error(answer.Code, answer.Body)
	}
	groups.failThaw = errors.New("injected")
	if answer := call(t, f, "/thaw", ``); answer.Code != 500 {
		t.Error(answer.Code, answer.Body)
	}
	for _, body := range []string{`{"deadline_ms":-1}`, `{"deadline_ms":10001}`, `{"deadline_ms":"x"}`, `[`} {
		if answer := call(t, f, "/freeze", body); answer.Code != 400 {
			t.Error(body, answer.Code, answer.Body)
		}
	}
}
