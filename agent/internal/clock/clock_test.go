package clock

import (
	"net/http/httptest"
	"strings"
	"testing"

	"coppice/agent/internal/api"
)

func TestOnlyATimeIsTaken(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"clock_unix_ns":"-5"}`, `{"clock_unix_ns":"x"}`, `{"clock_unix_ns":17}`} {
		answer := httptest.NewRecorder()
		api.Router{"POST /clock": Handle}.ServeHTTP(answer, httptest.NewRequest("POST", "/clock", strings.NewReader(body)))
		if answer.Code != 400 || !strings.Contains(answer.Body.String(), "clock_unix_ns") {
			t.Error(body, answer.Code, answer.Body)
		}
	}
	if ns, err := Parse("clock_unix_ns", "1763700000123456789"); err != nil || ns != 1763700000123456789 {
		t.Error(ns, err)
	}
	if ns, err := Parse("clock_unix_ns", ""); err != nil || ns != 0 {
		t.Error(ns, err)
	}
}

func TestTheMonotonicClockTellsWhatTimeItIs(t *testing.T) {
	if now := At(1_763_700_000_000_000_000, 5_000, 7_500); now != 1_763_700_000_000_002_500 {
		t.Error(now)
	}
	answer := httptest.NewRecorder()
	body := strings.NewReader(`{"clock_unix_ns":"1","clock_monotonic_ns":"-1"}`)
	api.Router{"POST /clock": Handle}.ServeHTTP(answer, httptest.NewRequest("POST", "/clock", body))
	if answer.Code != 400 || !strings.Contains(answer.Body.String(), "clock_monotonic_ns") {
		t.Error(answer.Code, answer.Body)
	}
}
