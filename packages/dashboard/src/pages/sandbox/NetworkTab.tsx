import { Empty } from '../../ui/states.tsx';
import type { TabProps } from './tab-props.ts';

export function NetworkTab({ record }: TabProps) {
  return <Empty icon="box" title={`Nothing is known about ${record.id}`} />;
}
