package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"coppice/agent/internal/fault"
)

func TestErrorsHaveTheirCodeAndStatus(t *testing.T) {
	routes := Router{
		"GET /known":   func(http.ResponseWriter, *http.Request) error { return fault.New(fault.DiskFull, "no space") },
		"GET /unknown": func(http.ResponseWriter, *http.Request) error { return errors.New("broken") },
	}
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/known":   {507, `{"code":"disk_full","message":"no space"}`},
		"/unknown": {500, `{"code":"internal","message":"broken"}`},
		"/missing": {404, `{"code":"not_found","message":"the agent has no GET /missing"}`},
	} {
		answer := httptest.NewRecorder()
		routes.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		if answer.Code != want.status || answer.Body.String() != want.body {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}

func TestReadJSONIgnoresUnknownFieldsAndNamesWrongOnes(t *testing.T) {
	var value struct {
		GraceMs int64 `json:"grace_ms"`
	}
	read := func(body string) error {
		return ReadJSON(httptest.NewRequest("POST", "/", strings.NewReader(body)), &value)
	}
	if err := errors.Join(read(`{"grace_ms":5,"new":1}`), read("")); err != nil || value.GraceMs != 5 {
		t.Fatal(err, value)
	}
	if err := read(`{"grace_ms":"5"}`); err == nil || !strings.Contains(err.Error(), "grace_ms") {
		t.Fatal(err)
	}
	if err := read(`{`); err == nil {
		t.Fatal("half an object was accepted")
	}
	if err := read(`"` + strings.Repeat("x", maxBodyBytes) + `"`); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Fatal(err)
	}
}
