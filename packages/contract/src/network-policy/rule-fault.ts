/** What is wrong with a rule, and what to write instead; follows the rule in a message. */
export interface RuleFault {
  fault: string;
}
