import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { KeptOutput, type Piece, type StreamName } from './kept-output.ts';

export interface LiveOutput {
  pieces: readonly Piece[];
  droppedCount: number;
  /** Adds a part. Resolves when the page has had the time to draw it, so that a fast command waits for the page. */
  add: (stream: StreamName, text: string) => Promise<void>;
  clear: () => void;
}

/** Characters that are taken between two frames. */
const MAX_FRAME = 1024 * 1024;
/** A page in the background draws no frames. */
const HIDDEN_MS = 100;

/** Keeps the output of a command that runs, and draws it once a frame. */
export function useLiveOutput(): LiveOutput {
  const kept = useRef(new KeptOutput());
  const shown = useSignal<{ pieces: readonly Piece[]; droppedCount: number }>({
    pieces: [],
    droppedCount: 0,
  });
  const pending = useRef<Promise<void> | undefined>(undefined);
  const added = useRef(0);
  const isGone = useRef(false);
  useEffect(() => () => void (isGone.current = true), []);
  const draw = (): void => {
    pending.current = undefined;
    added.current = 0;
    const { pieces, droppedCount } = kept.current;
    if (!isGone.current) shown.value = { pieces, droppedCount };
  };
  return {
    ...shown.value,
    add: async (stream, text) => {
      kept.current.add(stream, text);
      added.current += text.length;
      pending.current ??= nextFrame().then(draw);
      if (added.current > MAX_FRAME) await pending.current;
    },
    clear: () => {
      kept.current = new KeptOutput();
      draw();
    },
  };
}

function nextFrame(): Promise<void> {
  return new Promise((resolve) => {
    if (document.hidden) setTimeout(resolve, HIDDEN_MS);
    else requestAnimationFrame(() => resolve());
  });
}
