/** How a role reports that it is ready or has changed: to its supervisor, or to its operator if it has none. */
import { tellSupervisor, type RoleMessage } from './role-message.ts';
import { describeBootstrap, describeDashboard, describeRunner } from './start-report.ts';

export function announce(message: RoleMessage): void {
  if (process.send !== undefined) return tellSupervisor(message);
  for (const line of describeAlone(message)) process.stdout.write(`${line}\n`);
}

/** Returns the lines that the supervisor would print. The secrets of a control alone are in files: see control-role.ts. */
export function describeAlone(message: RoleMessage): string[] {
  if (message.type !== 'control-ready') return describeRunner(message);
  const { address, hasDashboard, bootstrap } = message;
  return [
    `coppice is listening on ${address}`,
    ...describeBootstrap(bootstrap),
    ...(hasDashboard ? describeDashboard(address, bootstrap) : []),
  ];
}
