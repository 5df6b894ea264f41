import { useSignal } from '@preact/signals';
import { Button } from './Button.tsx';
import { CopyButton } from './CopyButton.tsx';

/** A secret: hidden until it is asked for, and copied without being shown. */
export function SecretValue({
  value,
  name,
  isShown = false,
}: {
  value: string;
  name: string;
  isShown?: boolean;
}) {
  const isOpen = useSignal(isShown);
  return (
    <div class="secret">
      <code>{isOpen.value ? value : '•'.repeat(24)}</code>
      <Button kind="quiet" onClick={() => (isOpen.value = !isOpen.value)}>
        {isOpen.value ? 'Hide' : 'Show'}
      </Button>
      <CopyButton text={value} label={`Copy ${name}`} />
    </div>
  );
}
