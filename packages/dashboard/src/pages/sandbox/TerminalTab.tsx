import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { SandboxInfo } from '../../../../sdk/src/index.ts';
import { Button, IconButton } from '../../ui/Button.tsx';
import { CopyAsCode } from '../../ui/CopyAsCode.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Empty } from '../../ui/states.tsx';
import { useAction } from '../../ui/use-action.ts';
import { canUse, listActions } from './actions/offered-actions.ts';
import { explainReason } from './overview/life-text.ts';
import { codeOf } from './sandbox-code.ts';
import type { TabProps } from './tab-props.ts';
import { openSession, sessions, type TerminalSession } from './terminal/terminal-session.ts';
import { explainEnd } from './terminal/terminal-text.ts';
import { TouchKeys } from './terminal/TouchKeys.tsx';
import '@xterm/xterm/css/xterm.css';
import '../../styles/terminal.css';

const MAX_TERMINALS = 8;

export function TerminalTab({ sandbox, record, reload }: TabProps) {
  const own = sessions.value.filter(({ sandboxId }) => sandboxId === record.id);
  const chosen = useSignal<TerminalSession | undefined>(undefined);
  const shown = own.find((session) => session === chosen.value) ?? own.at(-1);
  const isOpenable = record.status === 'running' && canUse(record);
  const hasOpened = useRef(own.length > 0);
  const open = (): void => {
    hasOpened.current = true;
    chosen.value = openSession(sandbox, reload);
  };
  useEffect(() => {
    // The first terminal needs no click, unless that would wake the sandbox.
    if (isOpenable && !hasOpened.current) open();
  }, [isOpenable]);
  if (shown === undefined)
    return (
      <NoTerminal
        sandbox={sandbox}
        record={record}
        reload={reload}
        isOpenable={isOpenable}
        onOpen={open}
        onWake={() => (hasOpened.current = true)}
      />
    );
  return (
    <div class="terminals">
      <div class="terminal-head">
        <TerminalTabs own={own} shown={shown} onChoose={(session) => (chosen.value = session)} />
        {own.length < MAX_TERMINALS && isOpenable && (
          <IconButton icon="plus" label="Open another terminal" onClick={open} />
        )}
        <span class="gap" />
        <CopyButton text={`coppice shell ${record.id}`} label="Copy the command for your own terminal" />
        <CopyAsCode {...describeTerminal(record.id)} />
      </div>
      <Shown session={shown} />
      <Ended session={shown} sandbox={sandbox} record={record} reload={reload} />
      {shown.state.value.kind === 'open' && <TouchKeys session={shown} />}
      {shown.state.value.kind === 'open' && (
        <p class="terminal-hint">
          <kbd>Ctrl Shift C</kbd> copies, <kbd>Ctrl Shift V</kbd> pastes, <kbd>Ctrl F6</kbd> leaves the
          terminal. It stays open while you look at the other tabs of this sandbox.
        </p>
      )}
    </div>
  );
}

interface TerminalTabsProps {
  own: readonly TerminalSession[];
  shown: TerminalSession;
  onChoose: (session: TerminalSession) => void;
}

function TerminalTabs({ own, shown, onChoose }: TerminalTabsProps) {
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = step === undefined ? undefined : own[own.indexOf(shown) + step];
    if (event.key === 'ArrowDown') shown.focus();
    if (next !== undefined) onChoose(next);
  };
  return (
    <div class="terminal-tabs" role="group" aria-label="Terminals" onKeyDown={move}>
      {own.map((session) => (
        <span key={session.number} class="terminal-tab">
          <button
            type="button"
            aria-pressed={session === shown}
            title={session.title.value}
            onClick={() => onChoose(session)}
          >
            <span class={`dot ${session.state.value.kind}`} aria-hidden="true" />
            <bdi>{session.title.value}</bdi>
          </button>
          <IconButton icon="close" label={`Close ${session.title.value}`} onClick={() => session.close()} />
        </span>
      ))}
    </div>
  );
}

/** The place of the terminal in the page. Preact leaves its content to the session. */
function Shown({ session }: { session: TerminalSession }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (box.current !== null) session.show(box.current);
  }, [session]);
  return <div ref={box} class="terminal-box" role="group" aria-label={session.title.value} />;
}

function Ended({ session, sandbox, record, reload }: TabProps & { session: TerminalSession }) {
  const resume = useAction();
  const state = session.state.value;
  if (state.kind === 'open') return null;
  if (state.kind === 'connecting')
    return (
      <div class="terminal-notice" role="status">
        <span class="spinner" aria-hidden="true" /> Opening a shell
      </div>
    );
  const { text, remedy } = explainEnd(state.cause, record);
  const reconnect = async (): Promise<void> => {
    session.focus();
    await session.connect();
  };
  const wake = async (): Promise<void> => {
    const isAwake = await resume.run(async () => {
      await sandbox.resume();
      reload();
    });
    if (isAwake) await reconnect();
  };
  return (
    <div class="terminal-notice" role="status">
      <p>
        {text} {resume.error}
      </p>
      {remedy === 'reconnect' && (
        <Button icon="refresh" kind="primary" onClick={() => void reconnect()}>
          Open a new shell
        </Button>
      )}
      {remedy === 'resume' && (
        <Button icon="play" kind="primary" isBusy={resume.isBusy} onClick={() => void wake()}>
          Resume and open a shell
        </Button>
      )}
    </div>
  );
}

interface NoTerminalProps extends TabProps {
  isOpenable: boolean;
  onOpen: () => void;
  /** Called before the sandbox is resumed: the terminal that follows is the only one. */
  onWake: () => void;
}

function NoTerminal({ sandbox, record, reload, isOpenable, onOpen, onWake }: NoTerminalProps) {
  const resume = useAction();
  const canResume = listActions(record).some(({ id, isAllowed }) => id === 'resume' && isAllowed);
  const wake = async (): Promise<void> => {
    onWake();
    const isAwake = await resume.run(async () => {
      await sandbox.resume();
      reload();
    });
    if (isAwake) onOpen();
  };
  const action = isOpenable ? (
    <Button icon="terminal" kind="primary" onClick={onOpen}>
      Open a terminal
    </Button>
  ) : canResume ? (
    <Button icon="play" kind="primary" isBusy={resume.isBusy} onClick={() => void wake()}>
      Resume and open a terminal
    </Button>
  ) : undefined;
  return (
    <Empty icon="terminal" title={describeAbsence(record, isOpenable)} action={action}>
      {resume.error ?? explainReason(record.statusReason) ?? 'A terminal is a shell on a running sandbox.'}
    </Empty>
  );
}

function describeAbsence({ status, endedAt }: SandboxInfo, isOpenable: boolean): string {
  if (isOpenable) return 'No terminal is open';
  if (endedAt !== null) return 'The sandbox has ended';
  if (status === 'hibernated') return 'The sandbox is hibernated';
  return status === 'creating' ? 'The sandbox is being created' : 'The sandbox takes no terminal now';
}

/** A terminal is a WebSocket. With curl, the first step is the ticket that opens it. */
function describeTerminal(id: string): ReturnType<typeof codeOf> {
  return codeOf({
    id,
    method: 'POST',
    path: '/tickets',
    body: {},
    typescript: [
      'await using terminal = await sandbox.terminal({ cols: 120, rows: 40 });',
      "await terminal.write('ls -l; exit\\r');",
      'for await (const bytes of terminal) process.stdout.write(bytes);',
    ].join('\n'),
    python: [
      'import sys',
      'with sandbox.terminal(cols=120, rows=40) as terminal:',
      '    terminal.write("ls -l; exit\\r")',
      '    for output in terminal:',
      '        sys.stdout.buffer.write(output)',
    ].join('\n'),
  });
}
