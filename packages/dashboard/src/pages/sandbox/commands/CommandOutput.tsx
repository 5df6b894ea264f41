import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { Command, SandboxInfo } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../ui/explain.ts';
import { Button } from '../../../ui/Button.tsx';
import { CopyButton } from '../../../ui/CopyButton.tsx';
import { formatBytes } from '../../../ui/format.ts';
import { Card } from '../../../ui/Page.tsx';
import { OutputView } from '../output/OutputView.tsx';
import { useLiveOutput } from '../output/use-live-output.ts';
import { Segments } from '../../../ui/Segments.tsx';

type Stream = 'both' | 'stdout' | 'stderr';
const STREAMS: readonly (readonly [Stream, string])[] = [
  ['both', 'All'],
  ['stdout', 'stdout'],
  ['stderr', 'stderr'],
];
/** Of long output only the end is read. */
const TAIL_BYTES = 512 * 1024;

interface CommandOutputProps {
  command: Command;
  record: SandboxInfo;
  /** Called when the command has ended. */
  onEnd: () => void;
}

/** The output of a command, as it is written. */
export function CommandOutput({ command, record, onEnd }: CommandOutputProps) {
  const stream = useSignal<Stream>('both');
  // Output is in the guest. Reading it must not wake a sandbox that hibernates.
  const isReadable = record.status === 'running' && record.operation !== 'hibernating';
  const { output, begin, error, isDone, retry } = useFollowed(command, {
    stream: stream.value,
    isReadable,
    onEnd,
  });
  return (
    <Card
      title="Output"
      actions={
        <>
          <CopyButton
            text={output.pieces.map(({ text }) => text).join('')}
            label="Copy the output that is shown"
          />
          <Segments
            label="Stream"
            options={STREAMS}
            value={stream.value}
            isDisabled={!isReadable}
            onValue={(id) => (stream.value = id)}
          />
        </>
      }
    >
      {error !== undefined && (
        <div class="failure" role="alert">
          <p>{error}</p>
          <Button icon="refresh" onClick={retry}>
            Try again
          </Button>
        </div>
      )}
      {!isReadable && <p class="hint">{explainAbsence(record)}</p>}
      {begin > 0 && isReadable && (
        <p class="hint">The output begins {formatBytes(begin)} earlier. The API has all that is kept.</p>
      )}
      <OutputView
        label="Output of the command"
        pieces={output.pieces}
        droppedCount={output.droppedCount}
        placeholder={
          isDone ? 'There is no output.' : isReadable ? 'There is no output yet.' : 'Nothing was read.'
        }
      />
    </Card>
  );
}

function explainAbsence({ endedAt, status }: SandboxInfo): string {
  if (endedAt !== null) return 'The output was in the sandbox and ended with it.';
  if (status === 'hibernated') return 'The sandbox is hibernated. The output continues when it is resumed.';
  return 'The output continues when the sandbox runs.';
}

interface Following {
  stream: Stream;
  isReadable: boolean;
  onEnd: () => void;
}

/** Follows the output from near its end, and continues where it was after a time in which it could not be read. */
function useFollowed(command: Command, { stream, isReadable, onEnd }: Following) {
  const output = useLiveOutput();
  const error = useSignal<string | undefined>(undefined);
  const isDone = useSignal(false);
  const attempt = useSignal(0);
  const begin = useRef(Math.max(0, command.record.outputBytes - TAIL_BYTES));
  const position = useRef({ stream, offset: begin.current });
  const follow = async (signal: AbortSignal): Promise<void> => {
    const { offset } = position.current;
    const chosen = stream === 'both' ? {} : { stream };
    for await (const chunk of command.output({ ...chosen, offset, signal })) {
      position.current.offset = chunk.nextOffset;
      if (chunk.type !== 'dropped') await output.add(chunk.type, chunk.data);
    }
    isDone.value = true;
    onEnd();
  };
  useEffect(() => {
    if (position.current.stream !== stream) {
      position.current = { stream, offset: begin.current };
      output.clear();
      isDone.value = false;
    }
    error.value = undefined;
    if (!isReadable || isDone.value) return undefined;
    const end = new AbortController();
    follow(end.signal).catch((fault: unknown) => {
      if (!end.signal.aborted) error.value = explain(fault);
    });
    return () => end.abort();
  }, [command.id, stream, isReadable, attempt.value]);
  return {
    output,
    begin: begin.current,
    error: error.value,
    isDone: isDone.value,
    retry: () => (attempt.value += 1),
  };
}
