import { Button } from '../../ui/Button.tsx';
import type { TabProps } from './tab-props.ts';

export function SandboxActions({ reload }: TabProps) {
  return (
    <Button icon="refresh" onClick={reload}>
      Refresh
    </Button>
  );
}
