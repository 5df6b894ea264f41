package serve

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"coppice/hostctl/internal/netnstest"
)

func exchange(t *testing.T, lines ...string) []map[string]any {
	t.Helper()
	out := &bytes.Buffer{}
	if err := Run(strings.NewReader(strings.Join(lines, "\n")+"\n"), out); err != nil {
		t.Fatal(err)
	}
	answers := []map[string]any{}
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		answer := map[string]any{}
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			t.Fatal(err, line)
		}
		answers = append(answers, answer)
	}
	return answers
}

func TestAnswersEachRequestByItsId(t *testing.T) {
	netnstest.Enter(t)
	netnstest.Run(t, "nft", `table inet t { counter c { packets 5 bytes 6 }; set s { type ifname; elements = { "tap1" }; }; }`, "-f", "-")
	answers := exchange(t,
		`{"id":1,"op":"counter","table":"t","name":"c"}`,
		`{"id":2,"op":"set","table":"t","name":"s"}`,
		`{"id":3,"op":"set","table":"t","name":"absent"}`,
		`{"id":4,"op":"flush","mark":4294967295}`,
		`{"id":5,"op":"tap","name":"cop0p"}`,
		`{"id":6,"op":"original","local":"127.0.0.1:1","remote":"127.0.0.1:2"}`,
		`{"id":7,"op":"watch","table":"t"}`,
	)
	if len(answers) != 7 {
		t.Fatal(answers)
	}
	for at, answer := range answers {
		if answer["id"] != float64(at+1) || answer["error"] != nil {
			t.Error(answer)
		}
	}
	if answers[0]["result"] != float64(5) || answers[2]["result"] != nil || answers[5]["result"] != nil {
		t.Error(answers)
	}
	elements, _ := answers[1]["result"].([]any)
	if len(elements) != 1 || elements[0].(map[string]any)["remaining_ms"] != nil {
		t.Error(answers[1])
	}
}

func TestRefusesOperationsThatAreNotAllowed(t *testing.T) {
	out := &bytes.Buffer{}
	in := strings.NewReader(`{"id":1,"op":"flush","mark":1}` + "\n")
	if err := Run(in, out, "original"); err != nil || !strings.Contains(out.String(), "not allowed") {
		t.Error(err, out)
	}
}

func TestRefusesWhatItDoesNotUnderstand(t *testing.T) {
	answers := exchange(t,
		`{"id":1,"op":"reboot"}`,
		`{"id":2,"op":"original","local":"x","remote":"127.0.0.1:2"}`,
		`{"id":3,"op":"tap","name":"a name that is longer than fifteen bytes"}`,
	)
	for at, expected := range []string{`no operation "reboot"`, "local: ", "interface name"} {
		if text, _ := answers[at]["error"].(string); !strings.Contains(text, expected) {
			t.Errorf("%v: expected %q", answers[at], expected)
		}
	}
	if err := Run(strings.NewReader("not json\n"), &bytes.Buffer{}); err == nil {
		t.Error("a malformed line was accepted")
	}
	if err := Run(strings.NewReader(strings.Repeat("x", maxLineBytes+1)), &bytes.Buffer{}); err == nil {
		t.Error("a line without an end was accepted")
	}
}
