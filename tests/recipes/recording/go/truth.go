// What the recorded programs for Go share: the tools, and the truth that they write down, as in `truth.py`.
package main

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
)

const modelName = "scripted-model"

var modelURL = os.Getenv("RECORDING_MODEL")

type toolUse struct {
	Name  string         `json:"name"`
	Args  map[string]any `json:"args"`
	Error *string        `json:"error"`
}

type request struct {
	Input     string     `json:"input"`
	ToolsUsed []*toolUse `json:"tools_used"`
	Output    string     `json:"output"`
}

var (
	lock       sync.Mutex
	requests   []*request
	failedOnce = map[any]bool{}
)

// Answers each input in turn, and writes the calls to the log.
func answerAll(answer func(string) string) {
	var inputs []string
	check(json.Unmarshal([]byte(os.Getenv("RECORDING_INPUTS")), &inputs))
	for _, input := range inputs {
		made := &request{Input: input, ToolsUsed: []*toolUse{}}
		requests = append(requests, made)
		made.Output = answer(input)
	}
	text, err := json.MarshalIndent(map[string]any{"requests": requests}, "", " ")
	check(err)
	check(os.WriteFile(os.Getenv("RECORDING_TRUTH"), append(text, '\n'), 0o644))
}

func call(name string, arguments map[string]any) (map[string]any, error) {
	lock.Lock()
	defer lock.Unlock()
	made := &toolUse{Name: name, Args: arguments}
	current := requests[len(requests)-1]
	current.ToolsUsed = append(current.ToolsUsed, made)
	if name == "get_weather" {
		celsius := map[any]int{"Kyoto": 21, "Osaka": 23}
		return map[string]any{"city": arguments["city"], "celsius": celsius[arguments["city"]]}, nil
	}
	id := arguments["order_id"]
	if !failedOnce[id] {
		failedOnce[id] = true
		text := "the order service did not answer"
		made.Error = &text
		return nil, errors.New(text)
	}
	return map[string]any{"order_id": id, "status": "shipped"}, nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
