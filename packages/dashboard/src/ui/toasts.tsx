/** Short messages about what was done, at the edge of the page. Readers announce them. */
import { signal } from '@preact/signals';
import { explain } from './explain.ts';
import { IconButton } from './Button.tsx';
import { Icon } from './Icon.tsx';

interface Toast {
  id: number;
  kind: 'done' | 'failed';
  text: string;
}

const SHOWN_MS = 6000;
const MAX_SHOWN = 4;

const toasts = signal<readonly Toast[]>([]);
let lastId = 0;

export function showDone(text: string): void {
  show('done', text);
}

export function showFailure(error: unknown): void {
  show('failed', explain(error));
}

function show(kind: Toast['kind'], text: string): void {
  lastId += 1;
  const id = lastId;
  toasts.value = [...toasts.value, { id, kind, text }].slice(-MAX_SHOWN);
  // A failure stays until it is read.
  if (kind === 'done') setTimeout(() => remove(id), SHOWN_MS);
}

function remove(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, kind, text }) => (
        <div key={id} class={`toast ${kind}`}>
          <Icon name={kind === 'done' ? 'check' : 'alert'} />
          <span>{text}</span>
          <IconButton icon="close" label="Dismiss" onClick={() => remove(id)} />
        </div>
      ))}
    </div>
  );
}
