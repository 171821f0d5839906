export default () => "hello world";
