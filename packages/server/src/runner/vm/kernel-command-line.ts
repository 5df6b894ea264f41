import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';

const EMULATED_WORDS = [
  'mitigations=off',
  'nokaslr',
  'init_on_alloc=0',
  'hardened_usercopy=off',
  'randomize_kstack_offset=off',
  'cryptomgr.notests',
  // Debian's list without the modules that do nothing until they get a policy: guests have none.
  'lsm=landlock,yama',
];

/** Builds the kernel command line. `tscKhz` matters under emulation only: with KVM the guest uses a host clock. */
export function kernelCommandLine(accelerator: Accelerator, tscKhz?: number): string {
  const words = [
    'console=ttyS0',
    'quiet',
    'panic=-1',
    'reboot=t',
    'net.ifnames=0',
    'cgroup_no_v1=all',
    'no_timer_check',
    'tsc=reliable',
    'rcupdate.rcu_expedited=1',
    'random.trust_cpu=on',
    '8250.nr_uarts=1',
  ];
  // Emulation has no speculation to mitigate, and makes the checks of a kernel that hardens or tests itself many times
  // more expensive.
  if (accelerator === 'tcg') words.push(...EMULATED_WORDS);
  if (accelerator === 'tcg' && tscKhz !== undefined) words.push(`tsc_early_khz=${tscKhz}`);
  return words.join(' ');
}
