import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { client } from '../../service/session.ts';
import { Checkbox } from '../../ui/Field.tsx';
import { formatNumber } from '../../ui/format.ts';
import { Card } from '../../ui/Page.tsx';
import { Failure } from '../../ui/states.tsx';
import { BuildLogLines, type LogLine } from './build-log.ts';

/** Output comes in many small events: they are shown together. */
const GATHER_MS = 60;

interface Shown {
  lines: readonly LogLine[];
  dropped: number;
  hasEnded: boolean;
}

/** The log of a build, to its end. `onStep` is called with each step that begins, and at the end. */
export function BuildLog({ id, onStep }: { id: string; onStep: () => void }) {
  const { shown, error, retry } = useLog(id, onStep);
  const isFollowed = useSignal(true);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (isFollowed.value && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [shown.lines, isFollowed.value]);
  return (
    <Card
      title="Log"
      actions={
        <Checkbox
          label="Follow"
          isChecked={isFollowed.value}
          onChange={(isChecked) => (isFollowed.value = isChecked)}
        />
      }
    >
      <div
        ref={box}
        class="build-log"
        role="log"
        aria-label="Log of the build"
        tabIndex={0}
        onWheel={({ deltaY }) => {
          if (deltaY < 0) isFollowed.value = false;
        }}
      >
        {shown.dropped > 0 && (
          <div class="log-note">{formatNumber(shown.dropped)} earlier lines are not shown.</div>
        )}
        {shown.lines.map((line) => (
          <Line key={line.id} line={line} />
        ))}
        {shown.lines.length === 0 && <div class="log-note">Nothing was logged yet.</div>}
        {!shown.hasEnded && error === undefined && (
          <div class="log-note">
            <span class="spinner" aria-hidden="true" /> The build is running
          </div>
        )}
      </div>
      {error !== undefined && <Failure error={error} onRetry={retry} />}
    </Card>
  );
}

function Line({ line: { kind, text, isCached, step } }: { line: LogLine }) {
  if (kind === 'step')
    return (
      <div class="log-step">
        <span class="soft">{(step ?? 0) + 1}</span> {text}
        {isCached === true && <span class="label">cached</span>}
      </div>
    );
  return <div class={`log-${kind}`}>{text === '' ? ' ' : text}</div>;
}

function useLog(id: string, onStep: () => void) {
  const current = client.value;
  const shown = useSignal<Shown>({ lines: [], dropped: 0, hasEnded: false });
  const error = useSignal<unknown>(undefined);
  const attempt = useSignal(0);
  const listener = useRef(onStep);
  listener.current = onStep;
  useEffect(() => {
    if (current === undefined) return undefined;
    const end = new AbortController();
    const log = new BuildLogLines();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let hasEnded = false;
    const show = (): void => {
      timer = undefined;
      shown.value = { lines: log.lines, dropped: log.dropped, hasEnded };
    };
    const follow = async (): Promise<void> => {
      for await (const event of current.builds.follow(id, { signal: end.signal })) {
        log.add(event);
        hasEnded = event.type === 'end';
        if (event.type === 'step' || hasEnded) listener.current();
        timer ??= setTimeout(show, GATHER_MS);
      }
    };
    error.value = undefined;
    follow().catch((fault: unknown) => {
      if (!end.signal.aborted) error.value = fault;
    });
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [current, id, attempt.value]);
  return { shown: shown.value, error: error.value, retry: () => (attempt.value += 1) };
}
