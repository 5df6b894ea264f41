import type { SandboxInfo } from '../../../sdk/src/index.ts';
import { useNow } from '../service/resource.ts';
import { costSoFar } from './cost.ts';
import { formatCents } from './format.ts';

/** The cost of a sandbox up to now. It grows while the sandbox runs. */
export function Cost({ sandbox }: { sandbox: SandboxInfo }) {
  const now = useNow();
  return <span class="number">{formatCents(costSoFar(sandbox, now.value))}</span>;
}
