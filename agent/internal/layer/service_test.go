package layer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/freezer"
)

// groups are frozen at once.
type groups struct {
	mu     sync.Mutex
	frozen bool
	thaws  int
}

func (g *groups) set(frozen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozen = frozen
	if !frozen {
		g.thaws++
	}
}

func (g *groups) Freeze() error { g.set(true); return nil }
func (g *groups) Thaw() error   { g.set(false); return nil }

func (g *groups) AwaitFrozen(time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.frozen
}

type directoryRoot string

func (r directoryRoot) OpenUpper() (*os.File, error) { return os.Open(string(r)) }

// slowClient takes the first bytes of the layer, and the others when it may continue.
type slowClient struct {
	*httptest.ResponseRecorder
	once   sync.Once
	began  chan struct{}
	mayEnd chan struct{}
}

func (c *slowClient) Write(content []byte) (int, error) {
	c.once.Do(func() {
		close(c.began)
		<-c.mayEnd
	})
	return c.ResponseRecorder.Write(content)
}

// outcomeOf returns the trailer of a layer in the middle of which something happens.
func outcomeOf(t *testing.T, g *groups, f *freezer.Freezer, happens func(end func())) string {
	t.Helper()
	upper := t.TempDir()
	for _, name := range []string{"/a", "/b"} {
		if err := writeFile(upper+name, strings.Repeat("x", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	client := &slowClient{httptest.NewRecorder(), sync.Once{}, make(chan struct{}), make(chan struct{})}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	request := httptest.NewRequest("GET", "/layer", nil).WithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- New(directoryRoot(upper), f).Get(client, request) }()
	<-client.began
	if !g.AwaitFrozen(time.Time{}) {
		t.Error("the layer is read while the programs run")
	}
	happens(end)
	close(client.mayEnd)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	return client.Header().Get(http.TrailerPrefix + outcomeTrailer)
}

func TestASnapshotDuringALayerLetsNothingRun(t *testing.T) {
	g := &groups{}
	f := freezer.New(g)
	outcome := outcomeOf(t, g, f, func(func()) {
		f.Freeze(agenttest.Limit)
		if err := f.Thaw(); err != nil || g.thaws != 0 {
			t.Error("the programs run while the layer is read", err)
		}
	})
	if outcome != whole || g.thaws != 1 || g.frozen {
		t.Fatal(outcome, g.thaws, g.frozen)
	}
}

func TestALayersEndDoesNotThawASnapshot(t *testing.T) {
	g := &groups{}
	f := freezer.New(g)
	if outcome := outcomeOf(t, g, f, func(func()) { f.Freeze(agenttest.Limit) }); outcome != whole || g.thaws != 0 {
		t.Fatal(outcome, g.thaws)
	}
}

func TestALayerInACopyEndsWithoutAThaw(t *testing.T) {
	g := &groups{}
	f := freezer.New(g)
	outcome := outcomeOf(t, g, f, func(end func()) {
		f.Freeze(agenttest.Limit)
		end()
		f.BeginResume()
	})
	if outcome == whole || g.thaws != 0 {
		t.Fatal(outcome, g.thaws)
	}
	if err := f.EndResume(); err != nil || g.frozen {
		t.Fatal("not thawed", err)
	}
}

func TestALayerDuringWhichProgramsRanIsNotWhole(t *testing.T) {
	for name, run := range map[string]func(g *groups, f *freezer.Freezer){
		"ended": func(_ *groups, f *freezer.Freezer) {
			if err := f.EndResume(); err != nil {
				t.Error(err)
			}
			// What is frozen again has run.
			f.Freeze(agenttest.Limit)
		},
		"thawed in the guest": func(g *groups, _ *freezer.Freezer) { g.set(false) },
	} {
		g := &groups{}
		f := freezer.New(g)
		outcome := outcomeOf(t, g, f, func(func()) { run(g, f) })
		if outcome == whole || !strings.Contains(outcome, "programs") {
			t.Error(name, outcome)
		}
	}
}
