package workspace

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"coppice/agent/internal/agenttest"
	"coppice/agent/internal/api"
	"coppice/agent/internal/guest"
)

// client sends requests to a Service as the runner does.
type client struct {
	t          *testing.T
	routes     api.Router
	state      *guest.State
	sessionEnd chan struct{}
}

func newClient(t *testing.T, place *Workspace) *client {
	c := &client{t: t, state: &guest.State{}, sessionEnd: make(chan struct{})}
	service := NewService(Options{
		Workspace: place, Guest: c.state, SessionEnd: func(context.Context) <-chan struct{} { return c.sessionEnd },
	})
	c.routes = api.Router{
		"POST /workspace/mount": service.Mount, "POST /workspace/grow": service.Grow, "POST /workspace/sync": service.Sync,
		"POST /workspace/freeze": service.Freeze, "POST /workspace/thaw": service.Thaw, "POST /workspace/unmount": service.Unmount,
	}
	return c
}

func (c *client) post(action, body string) (status int, answer string) {
	recorder := httptest.NewRecorder()
	c.routes.ServeHTTP(recorder, httptest.NewRequest("POST", "/workspace/"+action, strings.NewReader(body)))
	return recorder.Code, recorder.Body.String()
}

func (c *client) expect(action, body string, status int, mention string) {
	c.t.Helper()
	if gotStatus, got := c.post(action, body); gotStatus != status || !strings.Contains(got, mention) {
		c.t.Errorf("%s %s: %d %s", action, body, gotStatus, got)
	}
}

func TestADiskIsUsedByRequests(t *testing.T) {
	f := newFixture(t, formatted(t))
	c := newClient(t, f.workspace)
	disk := fmt.Sprintf(`{"size_bytes":%d,"new":1}`, testBytes)
	c.expect("mount", disk, 409, "POST /resume first")
	c.expect("sync", "", 409, "no disk is mounted")
	c.state.Set(f.settings())
	c.expect("mount", disk, 200, `{}`)
	c.expect("mount", disk, 200, `{}`)
	c.expect("grow", disk, 200, `{}`)
	c.expect("sync", `{"deadline_ms":30000}`, 200, `{"done":true}`)
	c.expect("freeze", `{"deadline_ms":10000}`, 200, `{"frozen":true}`)
	c.expect("freeze", "", 409, "being frozen already")
	c.expect("unmount", "", 409, "being frozen already")
	c.expect("thaw", "", 200, `{"was_frozen":true}`)
	c.expect("thaw", "", 200, `{"was_frozen":false}`)
	c.expect("freeze", `{"deadline_ms":10000}`, 200, `{"frozen":true}`)
	close(c.sessionEnd)
	agenttest.Eventually(t, "the freeze ends with the session", func() bool { return !f.workspace.isHeld() })
	c.expect("unmount", `{"deadline_ms":10000}`, 200, `{}`)
	c.expect("grow", disk, 409, "no disk is mounted")
	c.expect("mount", disk, 200, `{}`)
	c.expect("unmount", `{"deadline_ms":10000,"abandon":true}`, 200, `{}`)
}

func TestAFieldThatIsWrongIsNamed(t *testing.T) {
	c := newClient(t, New(t.TempDir()))
	for _, action := range []string{"mount", "grow"} {
		for _, body := range []string{"", `{}`, `{"size_bytes":-512}`, `{"size_bytes":1048577}`, `{"size_bytes":2251799813685248}`, `{"size_bytes":"1"}`} {
			c.expect(action, body, 400, "size_bytes")
		}
	}
	for action, tooMuch := range map[string]string{"sync": "600001", "freeze": "10001", "unmount": "10001"} {
		for _, value := range []string{"-1", tooMuch, `"5"`, "1.5"} {
			c.expect(action, `{"deadline_ms":`+value+`}`, 400, "deadline_ms")
		}
		c.expect(action, `{`, 400, "not valid JSON")
	}
	c.expect("unmount", `{"abandon":1}`, 400, "abandon")
}

// FuzzRequests has no disk to work on, so a body that is accepted changes nothing.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{"", `{"size_bytes":1073741824}`, `{"deadline_ms":5,"abandon":true}`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		place := New(t.TempDir())
		place.find = func() (string, error) { return "/dev/null", nil }
		c := newClient(t, place)
		for _, action := range []string{"mount", "grow", "sync", "freeze", "thaw", "unmount"} {
			if status, answer := c.post(action, body); status != 200 && status != 400 && status != 409 {
				t.Errorf("%s: %d %s", action, status, answer)
			}
		}
	})
}
