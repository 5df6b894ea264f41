import { useSignal } from '@preact/signals';
import { Button } from './Button.tsx';
import { CopyButton } from './CopyButton.tsx';
import { Dialog } from './Dialog.tsx';
import { writeSnippet, type Snippet } from './snippets.ts';
import { Segments } from './Segments.tsx';

const LANGUAGES: readonly (readonly [keyof Snippet, string])[] = [
  ['curl', 'curl'],
  ['typescript', 'TypeScript'],
  ['python', 'Python'],
];

/** A button that shows an action of the page as code. */
export function CopyAsCode(call: Parameters<typeof writeSnippet>[0]) {
  const isOpen = useSignal(false);
  return (
    <>
      <Button icon="code" kind="quiet" onClick={() => (isOpen.value = true)}>
        Code
      </Button>
      {isOpen.value && <CodeDialog call={call} onClose={() => (isOpen.value = false)} />}
    </>
  );
}

function CodeDialog({ call, onClose }: { call: Parameters<typeof writeSnippet>[0]; onClose: () => void }) {
  const language = useSignal<keyof Snippet>('curl');
  const text = writeSnippet(call, location.origin)[language.value];
  return (
    <Dialog title="The same from a program" size="large" onClose={onClose}>
      <Segments
        label="Language"
        options={LANGUAGES}
        value={language.value}
        onValue={(id) => (language.value = id)}
      />
      <pre class="code" tabIndex={0}>
        <code>{text}</code>
      </pre>
      <div class="dialog-foot">
        <CopyButton text={text} label="Copy">
          Copy
        </CopyButton>
      </div>
    </Dialog>
  );
}
