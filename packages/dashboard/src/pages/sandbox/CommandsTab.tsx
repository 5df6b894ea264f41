import { useSignal } from '@preact/signals';
import { useLocation } from 'preact-iso';
import type { CommandInfo } from '../../../../sdk/src/index.ts';
import { useResource } from '../../service/resource.ts';
import { Badge } from '../../ui/Badge.tsx';
import { Button } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { DataTable, type Column } from '../../ui/DataTable.tsx';
import { formatNumber } from '../../ui/format.ts';
import { Empty, Loaded } from '../../ui/states.tsx';
import { Ago } from '../../ui/Time.tsx';
import { canUse } from './actions/offered-actions.ts';
import { CommandDetail, Duration } from './commands/CommandDetail.tsx';
import { describeCommand } from './commands/command-text.ts';
import { StartCommand } from './commands/StartCommand.tsx';
import { codeOf } from './sandbox-code.ts';
import type { TabProps } from './tab-props.ts';
import '../../styles/output.css';

const MAX_LISTED = 1000;
/** Characters of a command in the list. */
const MAX_SHOWN = 200;

const COLUMNS: readonly Column<CommandInfo>[] = [
  { id: 'command', label: 'Command', width: '3fr', cell: ({ command }) => <code>{firstLine(command)}</code> },
  {
    id: 'state',
    label: 'State',
    width: '8rem',
    cell: (record) => {
      const { text, tone } = describeCommand(record);
      return <Badge tone={tone}>{text}</Badge>;
    },
  },
  {
    id: 'tag',
    label: 'Tag',
    width: '8rem',
    isMinor: true,
    cell: ({ tag }) => (tag === null ? '' : <span class="label">{tag}</span>),
  },
  {
    id: 'duration',
    label: 'Duration',
    width: '7rem',
    isMinor: true,
    align: 'end',
    cell: (record) => <Duration record={record} />,
  },
  {
    id: 'started',
    label: 'Started',
    width: '7rem',
    align: 'end',
    cell: ({ startedAt }) => <Ago at={startedAt} />,
  },
];

/** `/sandboxes/:id/commands`, and with `?command=` one of them. */
export function CommandsTab({ sandbox, record }: TabProps) {
  const { query } = useLocation();
  const chosen = query['command'];
  const canReach = canUse(record);
  if (chosen !== undefined && chosen !== '')
    return (
      <CommandDetail key={chosen} sandbox={sandbox} record={record} commandId={chosen} canReach={canReach} />
    );
  return <CommandList sandbox={sandbox} record={record} canStart={canReach} />;
}

function CommandList({ sandbox, record, canStart }: Omit<TabProps, 'reload'> & { canStart: boolean }) {
  const { route } = useLocation();
  const isStarting = useSignal(false);
  const base = `/sandboxes/${record.id}/commands`;
  const commands = useResource(
    async (signal) => sandbox.commands.list({ limit: MAX_LISTED, signal }),
    [record.id],
    { concerns: ({ runId, type }) => runId === record.id && !type.startsWith('network.') },
  );
  const start = (
    <Button
      kind="primary"
      icon="play"
      isDisabled={!canStart}
      title={canStart ? undefined : 'The sandbox takes no commands now.'}
      onClick={() => (isStarting.value = true)}
    >
      Start a command
    </Button>
  );
  return (
    <div class="stack">
      <Loaded resource={commands} rows={5}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon="terminal" title="No command was started" action={record.endedAt === null && start}>
              A command that is started here continues when its client leaves, unlike one of a terminal.
            </Empty>
          ) : (
            <>
              <div class="row">
                <span class="soft" role="status">
                  {countListed(list.length)}
                </span>
                <span class="gap" />
                <CopyAsCode {...describeList(record.id)} />
                {record.endedAt === null && start}
              </div>
              <DataTable
                label="Commands"
                columns={COLUMNS}
                rows={list.map((command) => command.record)}
                rowId={({ id }) => id}
                href={({ id }) => `${base}?command=${encodeURIComponent(id)}`}
              />
            </>
          )
        }
      </Loaded>
      {isStarting.value && (
        <StartCommand
          sandbox={sandbox}
          onStarted={({ id }) => route(`${base}?command=${encodeURIComponent(id)}`)}
          onClose={() => (isStarting.value = false)}
        />
      )}
    </div>
  );
}

function countListed(count: number): string {
  if (count === MAX_LISTED) return `The newest ${formatNumber(count)} commands`;
  return `${formatNumber(count)} ${count === 1 ? 'command' : 'commands'}`;
}

function firstLine(command: string): string {
  const first = command.slice(0, MAX_SHOWN).split('\n', 1)[0] ?? '';
  return first.length === command.length ? first : `${first} …`;
}

function describeList(id: string): ReturnType<typeof codeOf> {
  return codeOf({
    id,
    method: 'GET',
    path: '/commands',
    typescript: 'for await (const { id, state } of sandbox.commands.list()) console.log(id, state);',
    python: 'for command in sandbox.commands.list():\n    print(command.id, command.state)',
  });
}
