package guest

import (
	"net/http/httptest"
	"strings"
	"testing"

	"coppice/agent/internal/api"
)

func post(state *State, body string) int {
	answer := httptest.NewRecorder()
	request := httptest.NewRequest("POST", "/environment", strings.NewReader(body))
	api.Router{"POST /environment": state.HandleEnvironment}.ServeHTTP(answer, request)
	return answer.Code
}

func TestEnvironmentIsReplacedAndNothingElse(t *testing.T) {
	state := &State{}
	state.Set(Settings{Env: map[string]string{"OLD": "1"}, User: "someone", Workdir: "/srv"})
	if code := post(state, `{"env":{"NEW":"2"}}`); code != 200 {
		t.Fatalf("answered %d", code)
	}
	settings, err := state.Get()
	if err != nil {
		t.Fatal(err)
	}
	if len(settings.Env) != 1 || settings.Env["NEW"] != "2" || settings.User != "someone" || settings.Workdir != "/srv" {
		t.Fatalf("settings are %+v", settings)
	}
}

func TestEnvironmentThatNoProcessCanHaveIsRefused(t *testing.T) {
	state := &State{}
	state.Set(Settings{Env: map[string]string{"OLD": "1"}})
	for _, body := range []string{`{"env":{"A=B":"1"}}`, `{"env":{"":"1"}}`, `{"env":{"A":"\u0000"}}`, `{"env":3}`} {
		if code := post(state, body); code != 400 {
			t.Errorf("%s: answered %d", body, code)
		}
	}
	settings, _ := state.Get()
	if settings.Env["OLD"] != "1" {
		t.Fatalf("settings are %+v", settings)
	}
}

func TestEnvironmentComesAfterTheFirstResume(t *testing.T) {
	if code := post(&State{}, `{"env":{}}`); code != 409 {
		t.Fatalf("answered %d", code)
	}
}
