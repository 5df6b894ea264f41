import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import type { Command, CommandInfo, Sandbox } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../service/errors.ts';
import { useNow, useResource } from '../../../service/resource.ts';
import { Badge } from '../../../ui/Badge.tsx';
import { Button, ButtonLink } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { formatBytes, formatDuration, formatMoment } from '../../../ui/format.ts';
import { Card, Facts } from '../../../ui/Page.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { Empty, Loaded } from '../../../ui/states.tsx';
import { OutputView } from '../output/OutputView.tsx';
import { useLiveOutput } from '../output/use-live-output.ts';
import { codeOf } from '../sandbox-code.ts';
import { CommandInput } from './CommandInput.tsx';
import { describeCommand, durationOf, explainExit } from './command-text.ts';
import { SignalMenu } from './SignalMenu.tsx';

interface CommandDetailProps {
  sandbox: Sandbox;
  commandId: string;
  /** Whether the guest takes calls now. */
  canReach: boolean;
}

/** One command, with its output as it is written. */
export function CommandDetail({ sandbox, commandId, canReach }: CommandDetailProps) {
  const list = `/sandboxes/${sandbox.id}/commands`;
  const resource = useResource(
    async (signal) => sandbox.commands.get(commandId, { signal }),
    [sandbox.id, commandId],
    { concerns: ({ runId, type }) => runId === sandbox.id && !type.startsWith('network.') },
  );
  return (
    <div class="stack">
      <p>
        <a href={list}>All commands</a>
      </p>
      <Loaded resource={resource} rows={6}>
        {(command) =>
          command === null ? (
            <Empty
              icon="search"
              title="There is no such command"
              action={<ButtonLink href={list}>All commands</ButtonLink>}
            />
          ) : (
            <Found command={command} sandbox={sandbox} canReach={canReach} reload={resource.reload} />
          )
        }
      </Loaded>
    </div>
  );
}

interface FoundProps {
  command: Command;
  sandbox: Sandbox;
  canReach: boolean;
  reload: () => void;
}

function Found({ command, sandbox, canReach, reload }: FoundProps) {
  const { record } = command;
  const isRunning = record.state === 'running';
  return (
    <>
      <Card
        title="Command"
        actions={
          <>
            {isRunning && (
              <SignalMenu command={command} sandboxId={sandbox.id} isDisabled={!canReach} onSent={reload} />
            )}
            <CopyAsCode {...describeOutput(sandbox.id, record.id)} />
          </>
        }
      >
        <pre class="code" tabIndex={0} aria-label="Command line">
          <code>{record.command}</code>
        </pre>
        <Facts facts={listFacts(record)} />
        {explainExit(record) !== undefined && <p class="hint">{explainExit(record)}</p>}
      </Card>
      <Output key={record.id} command={command} onEnd={reload} />
      {isRunning && <CommandInput command={command} isDisabled={!canReach} />}
    </>
  );
}

function listFacts(record: CommandInfo): (readonly [string, ComponentChildren])[] {
  const { id, tag, startedAt, outputBytes } = record;
  const { text, tone } = describeCommand(record);
  return [
    [
      'State',
      <Badge key="state" tone={tone}>
        {text}
      </Badge>,
    ],
    ['Started', formatMoment(startedAt)],
    ['Duration', <Duration key="duration" record={record} />],
    ['Output', formatBytes(outputBytes)],
    ['Tag', tag ?? <span class="soft">None</span>],
    [
      'Id',
      <span key="id" class="mono">
        {id}
      </span>,
    ],
  ];
}

export function Duration({ record }: { record: CommandInfo }) {
  const now = useNow();
  const ms = durationOf(record, now.value);
  return ms === undefined ? <span class="soft">unknown</span> : <>{formatDuration(ms)}</>;
}

type Stream = 'both' | 'stdout' | 'stderr';
const STREAMS: readonly (readonly [Stream, string])[] = [
  ['both', 'All'],
  ['stdout', 'stdout'],
  ['stderr', 'stderr'],
];
/** Of long output only the end is read. */
const TAIL_BYTES = 512 * 1024;

/** Follows the output from near its end, until the command or the page ends. */
function Output({ command, onEnd }: { command: Command; onEnd: () => void }) {
  const stream = useSignal<Stream>('both');
  const error = useSignal<string | undefined>(undefined);
  const isDone = useSignal(false);
  const attempt = useSignal(0);
  const output = useLiveOutput();
  const left = Math.max(0, command.record.outputBytes - TAIL_BYTES);
  useEffect(() => {
    const end = new AbortController();
    output.clear();
    error.value = undefined;
    isDone.value = false;
    const chosen = stream.value === 'both' ? {} : { stream: stream.value };
    void (async () => {
      try {
        for await (const chunk of command.output({ ...chosen, offset: left, signal: end.signal }))
          if (chunk.type !== 'dropped') await output.add(chunk.type, chunk.data);
        isDone.value = true;
        onEnd();
      } catch (fault) {
        if (!end.signal.aborted) error.value = explain(fault);
      }
    })();
    return () => end.abort();
  }, [command.id, stream.value, attempt.value]);
  return (
    <Card
      title="Output"
      actions={
        <>
          <CopyButton
            text={output.pieces.map(({ text }) => text).join('')}
            label="Copy the output that is shown"
          />
          <div class="segments" role="group" aria-label="Stream">
            {STREAMS.map(([id, label]) => (
              <button
                key={id}
                type="button"
                aria-pressed={stream.value === id}
                onClick={() => (stream.value = id)}
              >
                {label}
              </button>
            ))}
          </div>
        </>
      }
    >
      {error.value !== undefined && (
        <div class="failure" role="alert">
          <p>{error.value}</p>
          <Button icon="refresh" onClick={() => (attempt.value += 1)}>
            Try again
          </Button>
        </div>
      )}
      {left > 0 && (
        <p class="hint">The output begins {formatBytes(left)} earlier. The API has all that is kept.</p>
      )}
      <OutputView
        label="Output of the command"
        pieces={output.pieces}
        droppedCount={output.droppedCount}
        placeholder={isDone.value ? 'There is no output.' : 'There is no output yet.'}
      />
    </Card>
  );
}

function describeOutput(sandboxId: string, id: string): ReturnType<typeof codeOf> {
  return codeOf({
    id: sandboxId,
    method: 'GET',
    path: `/commands/${id}/output`,
    typescript: [
      `const command = await sandbox.commands.get(${toLiteral(id)});`,
      'for await (const chunk of command.output()) {',
      "  if (chunk.type !== 'dropped') process[chunk.type].write(chunk.data);",
      '}',
    ].join('\n'),
    python: [
      `command = sandbox.commands.get(${toPython(id)})`,
      'for piece in command.output():',
      '    print(piece)',
    ].join('\n'),
  });
}
