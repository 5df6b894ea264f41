import type { ComponentChildren } from 'preact';
import type { Command, CommandInfo, Sandbox, SandboxInfo } from '../../../../../sdk/src/index.ts';
import { useNow, useResource } from '../../../service/resource.ts';
import { Badge } from '../../../ui/Badge.tsx';
import { ButtonLink } from '../../../ui/Button.tsx';
import { CopyAsCode } from '../../../ui/CopyAsCode.tsx';
import { formatBytes, formatDuration, formatMoment } from '../../../ui/format.ts';
import { Icon } from '../../../ui/Icon.tsx';
import { Card, Facts } from '../../../ui/Page.tsx';
import { toLiteral, toPython } from '../../../ui/snippets.ts';
import { Empty, Loaded } from '../../../ui/states.tsx';
import { codeOf } from '../sandbox-code.ts';
import { CommandInput } from './CommandInput.tsx';
import { CommandOutput } from './CommandOutput.tsx';
import { describeCommand, durationOf, explainExit } from './command-text.ts';
import { SignalMenu } from './SignalMenu.tsx';

interface CommandDetailProps {
  sandbox: Sandbox;
  record: SandboxInfo;
  commandId: string;
  /** Whether the guest takes calls now. */
  canReach: boolean;
}

/** One command, with its output as it is written. */
export function CommandDetail({ sandbox, record, commandId, canReach }: CommandDetailProps) {
  const list = `/sandboxes/${sandbox.id}/commands`;
  const resource = useResource(
    async (signal) => sandbox.commands.get(commandId, { signal }),
    [sandbox.id, commandId],
    { concerns: ({ runId, type }) => runId === sandbox.id && !type.startsWith('network.') },
  );
  return (
    <div class="stack">
      <p>
        <a class="back" href={list}>
          <Icon name="arrowLeft" size={16} /> All commands
        </a>
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
            <Found command={command} sandbox={record} canReach={canReach} reload={resource.reload} />
          )
        }
      </Loaded>
    </div>
  );
}

interface FoundProps {
  command: Command;
  sandbox: SandboxInfo;
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
      <CommandOutput key={record.id} command={command} record={sandbox} onEnd={reload} />
      {isRunning && <CommandInput command={command} isDisabled={!canReach} />}
    </>
  );
}

function listFacts(record: CommandInfo): (readonly [string, ComponentChildren])[] {
  const { id, tag, state, startedAt, outputBytes } = record;
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
    // The service learns the size from time to time only.
    ...(state === 'running' ? [] : ([['Output', formatBytes(outputBytes)]] as const)),
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
