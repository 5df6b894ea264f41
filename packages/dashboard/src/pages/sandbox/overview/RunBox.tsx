import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Sandbox } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../ui/explain.ts';
import { Badge } from '../../../ui/Badge.tsx';
import { Button } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { TextField } from '../../../ui/Field.tsx';
import { formatDuration } from '../../../ui/format.ts';
import { Card } from '../../../ui/Page.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { OutputView } from '../output/OutputView.tsx';
import { useLiveOutput } from '../output/use-live-output.ts';
import { codeOf } from '../sandbox-code.ts';

const MAX_TIMEOUT_S = 86_400;

interface Outcome {
  exitCode: number;
  timedOut: boolean;
  ms: number;
}

interface RunBoxProps {
  sandbox: Sandbox;
  isDisabled: boolean;
  /** Called when a command has ended. */
  onEnd: () => void;
}

/** Runs one command and shows its output as it arrives. Leaving the page ends the command. */
export function RunBox({ sandbox, isDisabled, onEnd }: RunBoxProps) {
  const command = useSignal('');
  const timeout = useSignal('30');
  const run = useRun(sandbox, onEnd);
  const seconds = Number(timeout.value);
  const isTimeout = Number.isInteger(seconds) && seconds >= 1 && seconds <= MAX_TIMEOUT_S;
  const canRun = !isDisabled && command.value.trim() !== '' && isTimeout;
  const submit = (event: Event): void => {
    event.preventDefault();
    if (canRun && !run.isRunning) void run.start(command.value, seconds);
  };
  return (
    <Card title="Run a command" actions={<CopyAsCode {...describe(sandbox.id, command.value, seconds)} />}>
      <form class="run-form" onSubmit={submit}>
        <TextField
          label="Command"
          value={command.value}
          onValue={(value) => (command.value = value)}
          attributes={{ class: 'mono', placeholder: 'uname -a && df -h', disabled: isDisabled }}
        />
        <TextField
          label="Ends after (s)"
          value={timeout.value}
          error={isTimeout ? undefined : `From 1 to ${MAX_TIMEOUT_S}.`}
          onValue={(value) => (timeout.value = value)}
          attributes={{ type: 'number', min: 1, max: MAX_TIMEOUT_S, disabled: isDisabled }}
        />
        {run.isRunning ? (
          <Button key="stop" kind="danger" onClick={run.stop}>
            Stop
          </Button>
        ) : (
          // An element of its own: a click on "Stop" must not submit the form that it makes ready.
          <Button key="run" kind="primary" type="submit" icon="play" isDisabled={!canRun}>
            Run
          </Button>
        )}
      </form>
      {isDisabled && <p class="hint">The sandbox takes no commands now.</p>}
      {run.error !== undefined && (
        <p class="fault" role="alert">
          {run.error}
        </p>
      )}
      {run.hasBegun && (
        <OutputView
          label="Output of the command"
          {...run.output}
          placeholder={run.isRunning ? 'It runs, and has written nothing yet.' : 'It wrote nothing.'}
        />
      )}
      <div role="status">
        <Ending outcome={run.outcome} isRunning={run.isRunning} />
      </div>
    </Card>
  );
}

function Ending({ outcome, isRunning }: { outcome: Outcome | undefined; isRunning: boolean }) {
  if (isRunning) return <Badge tone="busy">running</Badge>;
  if (outcome === undefined) return null;
  const { exitCode, timedOut, ms } = outcome;
  return (
    <span class="row">
      <Badge tone={exitCode === 0 ? 'good' : 'bad'}>
        {timedOut ? 'stopped by its time limit' : `exit code ${exitCode}`}
      </Badge>
      <span class="soft">after {formatDuration(ms)}</span>
    </span>
  );
}

function useRun(sandbox: Sandbox, onEnd: () => void) {
  const output = useLiveOutput();
  const isRunning = useSignal(false);
  const hasBegun = useSignal(false);
  const error = useSignal<string | undefined>(undefined);
  const outcome = useSignal<Outcome | undefined>(undefined);
  const end = useRef<AbortController | undefined>(undefined);
  useEffect(() => () => end.current?.abort(), []);
  const start = async (command: string, timeout: number): Promise<void> => {
    const own = new AbortController();
    end.current = own;
    output.clear();
    error.value = undefined;
    outcome.value = undefined;
    hasBegun.value = true;
    isRunning.value = true;
    const begin = Date.now();
    try {
      const chunks = sandbox.stream(command, { timeout, signal: own.signal });
      let next = await chunks.next();
      for (; next.done !== true; next = await chunks.next())
        await output.add(next.value.type, next.value.data);
      outcome.value = { ...next.value, ms: Date.now() - begin };
    } catch (fault) {
      if (!own.signal.aborted) error.value = explain(fault);
    } finally {
      isRunning.value = false;
      onEnd();
    }
  };
  return {
    output: { pieces: output.pieces, droppedCount: output.droppedCount },
    isRunning: isRunning.value,
    hasBegun: hasBegun.value,
    error: error.value,
    outcome: outcome.value,
    start,
    stop: () => end.current?.abort(),
  };
}

function describe(id: string, text: string, seconds: number): Parameters<typeof CopyAsCode>[0] {
  const command = text.trim() === '' ? 'uname -a' : text;
  const timeout = Number.isInteger(seconds) ? seconds : 30;
  return codeOf({
    id,
    method: 'POST',
    path: '/exec',
    body: { command, timeout },
    typescript: `const { exitCode, stdout } = await sandbox.exec(${toLiteral(command)}, { timeout: ${timeout} });`,
    python: `result = sandbox.exec(${toPython(command)}, timeout=${timeout})\nprint(result.stdout)`,
  });
}
