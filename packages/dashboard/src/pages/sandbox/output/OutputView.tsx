import { useLayoutEffect, useRef } from 'preact/hooks';
import { formatNumber } from '../../../ui/format.ts';
import type { Piece } from './kept-output.ts';

interface OutputViewProps {
  label: string;
  pieces: readonly Piece[];
  /** Characters before them that the page keeps no more. */
  droppedCount: number;
  /** Shown while there is no output. */
  placeholder: string;
}

const NEAR_END_PX = 24;
/** A position that changes without an act of the reader shortly before is due to new output. */
const ACT_MS = 1000;

/** Output of a command. It follows the newest line unless the reader has scrolled up. */
export function OutputView({ label, pieces, droppedCount, placeholder }: OutputViewProps) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const actedAt = useRef(0);
  const noteAct = (): void => void (actedAt.current = Date.now());
  useLayoutEffect(() => {
    const element = box.current;
    if (element !== null && isAtEnd.current) element.scrollTop = element.scrollHeight;
  }, [pieces]);
  return (
    <div
      ref={box}
      class="output"
      role="log"
      aria-live="off"
      aria-label={label}
      tabIndex={0}
      onWheel={noteAct}
      onPointerDown={noteAct}
      onPointerMove={({ buttons }) => {
        if (buttons !== 0) noteAct();
      }}
      onTouchMove={noteAct}
      onKeyDown={noteAct}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        const isNear = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
        if (isNear || Date.now() - actedAt.current < ACT_MS) isAtEnd.current = isNear;
      }}
    >
      {droppedCount > 0 && (
        <p class="output-note">{formatNumber(droppedCount)} earlier characters are not shown</p>
      )}
      {pieces.length === 0 && <p class="output-note">{placeholder}</p>}
      <pre>
        {pieces.map(({ id, stream, text }) => (
          <span key={id} class={stream}>
            {text}
          </span>
        ))}
      </pre>
    </div>
  );
}
