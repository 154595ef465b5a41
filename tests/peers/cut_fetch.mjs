// Prints `cut` when the answer at URL is seen to be cut, else what looked whole.
try {
  const answer = await fetch(process.argv[2]);
  const body = await answer.text();
  console.log("whole", answer.status, body.length);
} catch (error) {
  console.log("cut", error.message, error.cause?.message);
}
